package io.esker.hadoop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** Writes a blob as a file of this machine, and is done when it is on disk: before that, nothing names it. */
public final class LocalWriter implements BlobWriter {
  /** Whoever empties directories may take one away between its making and its use. */
  private static final int TRIES = 10;

  private final Path file;
  private final FileChannel channel;

  public LocalWriter(Path file) throws IOException {
    this.file = file;
    this.channel = create(file);
  }

  private static FileChannel create(Path file) throws IOException {
    for (int tried = 1; ; tried++) {
      try {
        return FileChannel.open(file, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
      } catch (NoSuchFileException error) {
        if (tried == TRIES) {
          throw error;
        }
        Files.createDirectories(file.getParent());
        sync(file.getParent().getParent());
      }
    }
  }

  @Override
  public void write(byte[] bytes, int offset, int length) throws IOException {
    for (ByteBuffer left = ByteBuffer.wrap(bytes, offset, length); left.hasRemaining(); ) {
      channel.write(left);
    }
  }

  @Override
  public void finish(long size, String md5) throws IOException {
    try (channel) {
      channel.force(true);
    }
    sync(file.getParent());
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

  private static void sync(Path directory) throws IOException {
    try (FileChannel channel = FileChannel.open(directory, StandardOpenOption.READ)) {
      channel.force(true);
    }
  }
}
