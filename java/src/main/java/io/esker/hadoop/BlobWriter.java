package io.esker.hadoop;

import java.io.IOException;

/**
 * Writes the bytes of one object to where they are to lie. The object appears with {@code finish}, whole, and otherwise
 * never. One of {@code finish} and {@code discard} is called, once, and nothing after it.
 */
public interface BlobWriter {
  void write(byte[] bytes, int offset, int length) throws IOException;

  /** All is written: {@code size} bytes, of this MD5 in hexadecimal digits. */
  void finish(long size, String md5) throws IOException;

  /** What was written is wanted no more. */
  void discard();
}
