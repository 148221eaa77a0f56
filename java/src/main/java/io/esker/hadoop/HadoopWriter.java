package io.esker.hadoop;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Writes a blob through Hadoop's own file system for the store. */
public final class HadoopWriter implements BlobWriter {
  private final FileSystem store;
  private final Path blob;
  private final FSDataOutputStream out;

  public HadoopWriter(Path blob, Configuration conf) throws IOException {
    this.blob = blob;
    this.store = blob.getFileSystem(conf);
    this.out = store.create(blob, false);
  }

  @Override
  public void write(byte[] bytes, int offset, int length) throws IOException {
    out.write(bytes, offset, length);
  }

  @Override
  public void finish(long size, String md5) throws IOException {
    out.close();
  }

  @Override
  public void discard() {
    try {
      if (out.hasCapability(CommonPathCapabilities.ABORTABLE_STREAM)) {
        out.abort();
      } else {
        out.close();
        store.delete(blob, false);
      }
    } catch (IOException error) {
      // A blob that nothing names is found by whoever collects garbage.
    }
  }
}
