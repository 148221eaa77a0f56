package io.esker.spark;

import io.esker.hadoop.BlobWriter;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * Writes a blob of a job as a file of this machine. It is not flushed to the disk here, file by file: the server does
 * that, once, for all of a job, before the first of them is shown.
 */
final class DirectWriter implements BlobWriter {
  private final Path file;
  private final FileChannel channel;

  DirectWriter(Path file) throws IOException {
    this.file = file;
    this.channel = FileChannel.open(file, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
  }

  @Override
  public void write(byte[] bytes, int offset, int length) throws IOException {
    for (ByteBuffer left = ByteBuffer.wrap(bytes, offset, length); left.hasRemaining(); ) {
      channel.write(left);
    }
  }

  @Override
  public void finish(long size, String md5) throws IOException {
    channel.close();
  }

  @Override
  public void discard() {
    try {
      channel.close();
      Files.deleteIfExists(file);
    } catch (IOException error) {
      // A blob that nothing names is found by whoever collects garbage.
    }
  }
}
