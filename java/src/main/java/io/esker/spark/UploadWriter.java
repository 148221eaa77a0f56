package io.esker.spark;

import io.esker.hadoop.BlobWriter;
import io.esker.hadoop.JobBlobs;
import io.esker.hadoop.Spool;
import java.io.IOException;

/** Sends a blob of a job, when all of it is known, by a URL: for a process that has no other way to the store. */
final class UploadWriter implements BlobWriter {
  private final Uploads uploads;
  private final int number;
  private final Spool spool = new Spool();

  UploadWriter(Uploads uploads, int number) {
    this.uploads = uploads;
    this.number = number;
  }

  @Override
  public void write(byte[] bytes, int offset, int length) throws IOException {
    spool.write(bytes, offset, length);
  }

  @Override
  public void finish(long size, String md5) throws IOException {
    try (spool) {
      JobBlobs.upload(uploads.target(number, size), spool.body());
    }
  }

  @Override
  public void discard() {
    spool.discard();
  }
}
