package io.esker.hadoop;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;

/** Reads the bytes of one blob at any place. Several threads may, at the same time. */
interface BlobReader extends Closeable {

  /** At least one byte from {@code position} on, which lies before the end, and at most what fits: how many. */
  int read(long position, ByteBuffer into) throws IOException;

  /** Whether a read costs so much that several are better done at once, and more is better read than was asked for. */
  boolean isFar();
}
