package io.esker.hadoop;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;

/** Reads a file of this machine. */
final class LocalReader implements BlobReader {
  private final FileChannel channel;

  LocalReader(FileChannel channel) {
    this.channel = channel;
  }

  @Override
  public int read(long position, ByteBuffer into) throws IOException {
    int read = channel.read(into, position);
    if (read <= 0) {
      throw new EOFException("a blob ends at " + position + ", before it should");
    }
    return read;
  }

  @Override
  public boolean isFar() {
    return false;
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }
}
