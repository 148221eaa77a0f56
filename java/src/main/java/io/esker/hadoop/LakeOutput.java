package io.esker.hadoop;

import java.io.IOException;
import java.io.OutputStream;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Locale;
import org.apache.hadoop.fs.Abortable;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.StreamCapabilities;

/** An object being written. It appears when this is closed, unless it was aborted, or a write has failed. */
public final class LakeOutput extends OutputStream implements Abortable, StreamCapabilities {
  private static final int BUFFER_BYTES = 64 << 10;

  private final BlobWriter blob;
  private final String name;
  private final MessageDigest md5 = md5();
  private final byte[] buffer = new byte[BUFFER_BYTES];
  private int buffered;
  private long size;
  private boolean isOver;
  private IOException failure;

  public LakeOutput(BlobWriter blob, String name) {
    this.blob = blob;
    this.name = name;
  }

  @Override
  public synchronized void write(int value) throws IOException {
    checkOpen();
    if (buffered == BUFFER_BYTES) {
      drain();
    }
    buffer[buffered++] = (byte) value;
  }

  @Override
  public synchronized void write(byte[] bytes, int offset, int length) throws IOException {
    checkOpen();
    if (length > BUFFER_BYTES - buffered) {
      drain();
    }
    if (length > BUFFER_BYTES) {
      send(bytes, offset, length);
    } else {
      System.arraycopy(bytes, offset, buffer, buffered, length);
      buffered += length;
    }
  }

  /** Nothing that is not closed can be read, so there is nothing to flush to. */
  @Override
  public synchronized void flush() throws IOException {
    checkOpen();
  }

  @Override
  public synchronized void close() throws IOException {
    if (isOver) {
      return;
    }
    if (failure != null) {
      isOver = true;
      blob.discard();
      throw new IOException(name + " was not written: " + failure.getMessage(), failure);
    }
    try {
      drain();
    } catch (IOException error) {
      isOver = true;
      blob.discard();
      throw error;
    }
    isOver = true;
    try {
      blob.finish(size, HexFormat.of().formatHex(md5.digest()));
    } catch (LakeException error) {
      throw error.asHadoop();
    }
  }

  @Override
  public synchronized AbortableResult abort() {
    boolean wasOver = isOver;
    if (!isOver) {
      isOver = true;
      blob.discard();
    }
    return new AbortableResult() {
      @Override
      public boolean alreadyClosed() {
        return wasOver;
      }

      @Override
      public IOException anyCleanupException() {
        return null;
      }
    };
  }

  @Override
  public boolean hasCapability(String capability) {
    return capability.toLowerCase(Locale.ROOT).equals(CommonPathCapabilities.ABORTABLE_STREAM);
  }

  private void drain() throws IOException {
    int length = buffered;
    buffered = 0;
    send(buffer, 0, length);
  }

  private void send(byte[] bytes, int offset, int length) throws IOException {
    try {
      blob.write(bytes, offset, length);
    } catch (IOException error) {
      failure = error;
      throw error;
    }
    md5.update(bytes, offset, length);
    size += length;
  }

  private void checkOpen() throws IOException {
    if (isOver) {
      throw new IOException(name + " is closed");
    }
  }

  private static MessageDigest md5() {
    try {
      return MessageDigest.getInstance("MD5");
    } catch (NoSuchAlgorithmException error) {
      throw new AssertionError("every Java has MD5", error);
    }
  }
}
