package io.esker.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.List;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.security.AccessControlException;

/** What the server answered instead of doing it: its status, its stable kind, and its words. */
public final class LakeException extends IOException {
  private static final long serialVersionUID = 1L;

  private final int status;
  private final String kind;
  private final List<String> paths;

  LakeException(int status, String kind, String message, List<String> paths) {
    super(message);
    this.status = status;
    this.kind = kind;
    this.paths = paths;
  }

  public int status() {
    return status;
  }

  /** Empty if the server named none. */
  public String kind() {
    return kind;
  }

  /** Paths that stand in the way, where the answer names some. */
  public List<String> paths() {
    return paths;
  }

  /** The same as callers of a Hadoop FileSystem know it. */
  public IOException asHadoop() {
    IOException known;
    if (status == 404 || status == 410) {
      known = new FileNotFoundException(getMessage());
    } else if (status == 401 || status == 403) {
      known = new AccessControlException(getMessage());
    } else if (status == 412 && kind.equals("object-exists")) {
      known = new FileAlreadyExistsException(getMessage());
    } else {
      return this;
    }
    known.initCause(this);
    return known;
  }
}
