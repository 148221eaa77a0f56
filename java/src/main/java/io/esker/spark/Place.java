package io.esker.spark;

import org.apache.hadoop.fs.Path;

/** A place in a lake, {@code lakefs://repo/branch/path}, taken apart. */
final class Place {
  static final String SCHEME = "lakefs";

  final String repo;
  final String branch;

  /** Without slashes at its ends; empty for all of the branch. */
  final String path;

  private Place(String repo, String branch, String path) {
    this.repo = repo;
    this.branch = branch;
    this.path = path;
  }

  static boolean isLake(String path) {
    return path != null && path.startsWith(SCHEME + ":");
  }

  static Place of(Path path) {
    String repo = path.toUri().getAuthority();
    String rest = path.toUri().getPath();
    rest = rest.startsWith("/") ? rest.substring(1) : rest;
    int end = rest.indexOf('/');
    String branch = end < 0 ? rest : rest.substring(0, end);
    if (repo == null || branch.isEmpty()) {
      throw new IllegalArgumentException("'" + path + "' names no branch: write " + SCHEME + "://repository/branch/path");
    }
    return new Place(repo, branch, end < 0 ? "" : rest.substring(end + 1));
  }

  boolean isOnBranchOf(Place other) {
    return repo.equals(other.repo) && branch.equals(other.branch);
  }

  /** What the paths of all that lies in here begin with. */
  String prefix() {
    return path.isEmpty() ? "" : path + "/";
  }

  /** What messages call it: the path, or '/' for all of the branch. */
  String name() {
    return path.isEmpty() ? "/" : path;
  }

  @Override
  public String toString() {
    return SCHEME + "://" + repo + "/" + branch + "/" + path;
  }
}
