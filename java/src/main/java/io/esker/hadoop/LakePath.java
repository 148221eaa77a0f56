package io.esker.hadoop;

import java.io.FileNotFoundException;
import org.apache.hadoop.fs.Path;

/**
 * What {@code lakefs://repository/ref/key} names: with an empty key, all that the ref shows; with an empty ref as well,
 * the repository.
 */
record LakePath(String repository, String ref, String key) {

  /** Of an absolute path in a file system whose authority is the repository. */
  static LakePath of(Path path) {
    String names = path.toUri().getPath();
    int start = names.startsWith("/") ? 1 : 0;
    int end = names.indexOf('/', start);
    String repository = path.toUri().getAuthority();
    if (end < 0) {
      return new LakePath(repository, names.substring(start), "");
    }
    return new LakePath(repository, names.substring(start, end), names.substring(end + 1));
  }

  /** The prefix of all that lies in the directory of this name. */
  String inside() {
    return key.isEmpty() ? "" : key + "/";
  }

  /** This, if it is a place where an object can be. */
  LakePath forObject() throws FileNotFoundException {
    if (key.isEmpty()) {
      throw new FileNotFoundException(this + " is no place for a file: write lakefs://" + repository + "/branch/path");
    }
    return this;
  }

  /** This, if it names a branch at least. */
  LakePath forBranch() throws FileNotFoundException {
    if (ref.isEmpty()) {
      throw new FileNotFoundException(this + " names no branch: write lakefs://" + repository + "/branch/path");
    }
    return this;
  }

  /** The path of another object of the same ref. */
  Path at(String other) {
    return new Path("lakefs", repository, "/" + ref + "/" + other);
  }

  @Override
  public String toString() {
    return "lakefs://" + repository + "/" + ref + (key.isEmpty() ? "" : "/" + key);
  }

  /** Whether a path can name the object: keys with empty, '.' or '..' parts are out of Hadoop's reach. */
  static boolean canName(String key) {
    return !key.isEmpty()
        && !key.startsWith("/")
        && !key.endsWith("/")
        && !key.contains("//")
        && !("/" + key + "/").contains("/./")
        && !("/" + key + "/").contains("/../");
  }
}
