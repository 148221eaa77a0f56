package io.esker.spark;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * What the writers of file formats see of an attempt: a place to create files in, {@code esker-job:/attempt/name}. It
 * answers from memory what it is asked about them, and makes no call.
 */
public final class JobFileSystem extends FileSystem {
  static final String SCHEME = "esker-job";

  private static final URI ROOT = URI.create(SCHEME + ":///");

  private Path workingDirectory = new Path("/");

  /**
   * Makes this the file system of its scheme in this process, whatever the configurations that are used later say:
   * Hadoop keeps one instance for all.
   */
  static void announce(Configuration conf) throws IOException {
    String key = "fs." + SCHEME + ".impl";
    if (conf.get(key) == null) {
      conf.set(key, JobFileSystem.class.getName());
    }
    FileSystem.get(ROOT, conf);
  }

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setConf(conf);
  }

  @Override
  public String getScheme() {
    return SCHEME;
  }

  @Override
  public URI getUri() {
    return ROOT;
  }

  @Override
  public FSDataOutputStream create(
      Path file, FsPermission permission, boolean overwrite, int buffer, short replicas, long block, Progressable told)
      throws IOException {
    return new FSDataOutputStream(Attempt.of(file).create(file), statistics);
  }

  @Override
  public FSDataOutputStream createNonRecursive(
      Path file, FsPermission permission, java.util.EnumSet<org.apache.hadoop.fs.CreateFlag> flags, int buffer,
      short replicas, long block, Progressable told)
      throws IOException {
    return create(file, permission, true, buffer, replicas, block, told);
  }

  @Override
  public FileStatus getFileStatus(Path file) throws IOException {
    Attempt attempt = Attempt.of(file);
    if (file.toUri().getPath().equals(attempt.work().toUri().getPath())) {
      return new FileStatus(0, true, 1, getDefaultBlockSize(file), 0, file);
    }
    return new FileStatus(attempt.size(file), false, 1, getDefaultBlockSize(file), System.currentTimeMillis(), file);
  }

  @Override
  public boolean mkdirs(Path directory, FsPermission permission) {
    return true;
  }

  @Override
  public boolean delete(Path file, boolean recursive) throws IOException {
    return Attempt.of(file).forget(file);
  }

  @Override
  public FileStatus[] listStatus(Path directory) throws FileNotFoundException {
    throw new FileNotFoundException(directory + " is written to, and not read");
  }

  @Override
  public FSDataInputStream open(Path file, int buffer) throws IOException {
    throw new UnsupportedOperationException(file + " can be read once the job is committed");
  }

  @Override
  public FSDataOutputStream append(Path file, int buffer, Progressable told) {
    throw new UnsupportedOperationException("files of a job are written once");
  }

  @Override
  public boolean rename(Path source, Path target) {
    throw new UnsupportedOperationException("files of a job stay where they are");
  }

  @Override
  public void setWorkingDirectory(Path directory) {
    workingDirectory = directory;
  }

  @Override
  public Path getWorkingDirectory() {
    return workingDirectory;
  }
}
