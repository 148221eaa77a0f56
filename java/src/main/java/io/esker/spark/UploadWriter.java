package io.esker.spark;

import io.esker.hadoop.BlobWriter;
import io.esker.hadoop.JobBlobs;
import io.esker.hadoop.Spool;
import java.io.IOException;
import java.net.URI;

/** Writes a blob of a job through the server, for a process that cannot reach the store. */
final class UploadWriter implements BlobWriter {
  private final URI target;
  private final Spool spool = new Spool();

  UploadWriter(String target) {
    this.target = URI.create(target);
  }

  @Override
  public void write(byte[] bytes, int offset, int length) throws IOException {
    spool.write(bytes, offset, length);
  }

  @Override
  public void finish(long size, String md5) throws IOException {
    try (spool) {
      JobBlobs.upload(target, spool.body());
    }
  }

  @Override
  public void discard() {
    try {
      spool.close();
    } catch (IOException error) {
      // A temporary file is left, and nothing else.
    }
  }
}
