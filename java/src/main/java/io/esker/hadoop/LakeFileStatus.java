package io.esker.hadoop;

import java.io.IOException;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;

/** A file's status, with its entry: to open it takes no call. */
final class LakeFileStatus extends LocatedFileStatus implements EtagSource {
  private static final long serialVersionUID = 1L;

  /** What Spark cuts large files by, and nothing else here. */
  static final long BLOCK_BYTES = 128L << 20;

  /** All hosts are equally near to the bytes: what Hadoop takes for that. */
  private static final String[] ANY_HOST = {"localhost"};

  private final transient Entry entry;
  private final String etag;

  private LakeFileStatus(Entry entry, FileStatus status) throws IOException {
    super(status, new BlockLocation[] {new BlockLocation(ANY_HOST, ANY_HOST, 0, entry.size())});
    this.entry = entry;
    this.etag = entry.etag();
  }

  static LakeFileStatus of(Path path, Entry entry) throws IOException {
    return new LakeFileStatus(entry, new FileStatus(entry.size(), false, 1, BLOCK_BYTES, entry.mtimeMs(), path));
  }

  static FileStatus directory(Path path) {
    return new FileStatus(0, true, 0, 0, 0, path);
  }

  /** Null in a copy that came from another process. */
  Entry entry() {
    return entry;
  }

  @Override
  public String getEtag() {
    return etag;
  }

  @Override
  public boolean equals(Object other) {
    return super.equals(other);
  }

  @Override
  public int hashCode() {
    return super.hashCode();
  }
}
