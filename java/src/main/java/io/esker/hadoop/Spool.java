package io.esker.hadoop;

import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.OutputStream;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.nio.file.Files;
import java.nio.file.Path;

/** Bytes kept until they can be sent, since stores want to know how many there are: few in memory, many in a file. */
public final class Spool implements Closeable {
  private static final int MEMORY_BYTES_MAX = 8 << 20;

  private ByteArrayOutputStream memory = new ByteArrayOutputStream();
  private Path file;
  private OutputStream out;

  public void write(byte[] bytes, int offset, int length) throws IOException {
    if (memory != null && memory.size() + length > MEMORY_BYTES_MAX) {
      file = Files.createTempFile("lakefs-", ".upload");
      out = Files.newOutputStream(file);
      memory.writeTo(out);
      memory = null;
    }
    if (memory != null) {
      memory.write(bytes, offset, length);
    } else {
      out.write(bytes, offset, length);
    }
  }

  /** All of it. It can be sent several times. */
  public BodyPublisher body() throws IOException {
    if (memory != null) {
      return BodyPublishers.ofByteArray(memory.toByteArray());
    }
    out.close();
    return BodyPublishers.ofFile(file);
  }

  public void discard() {
    try {
      close();
    } catch (IOException error) {
      // A temporary file is left to whoever cleans up.
    }
  }

  @Override
  public void close() throws IOException {
    if (out != null) {
      out.close();
      Files.deleteIfExists(file);
    }
  }
}
