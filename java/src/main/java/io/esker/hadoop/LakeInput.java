package io.esker.hadoop;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.ByteBufferPositionedReadable;
import org.apache.hadoop.fs.ByteBufferReadable;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.VectoredReadUtils;
import org.apache.hadoop.fs.impl.CombinedFileRange;

/**
 * The bytes of an object. Small reads come from a window of it; the window of a blob that is far grows while it is read
 * on and on, and is small again after a seek.
 */
final class LakeInput extends FSInputStream
    implements ByteBufferReadable, ByteBufferPositionedReadable, StreamCapabilities {
  private static final int NEAR_WINDOW_BYTES = 64 << 10;
  private static final int FAR_WINDOW_BYTES_MIN = 256 << 10;
  private static final int FAR_WINDOW_BYTES_MAX = 8 << 20;

  /** Two ranges of a far blob that are closer are read as one. */
  private static final int FAR_GAP_BYTES = 128 << 10;

  private static final int THREADS = 16;

  /** For ranges of far blobs that are read at the same time. They mostly wait. */
  private static final ExecutorService POOL =
      Executors.newFixedThreadPool(
          THREADS,
          task -> {
            Thread thread = new Thread(task, "lakefs-read");
            thread.setDaemon(true);
            return thread;
          });

  private final BlobReader blob;
  private final String name;
  private final long size;
  private final FileSystem.Statistics statistics;

  private ByteBuffer window = ByteBuffer.allocate(0);

  /** Of what follows the window. */
  private long windowEnd;

  private int windowBytes;
  private boolean isSought = true;
  private volatile boolean isClosed;

  LakeInput(BlobReader blob, String name, long size, FileSystem.Statistics statistics) {
    this.blob = blob;
    this.name = name;
    this.size = size;
    this.statistics = statistics;
  }

  @Override
  public synchronized long getPos() {
    return windowEnd - window.remaining();
  }

  @Override
  public synchronized void seek(long position) throws IOException {
    checkOpen();
    if (position < 0) {
      throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK + ": " + position + " in " + name);
    }
    if (position > size) {
      throw new EOFException(FSExceptionMessages.CANNOT_SEEK_PAST_EOF + ": " + position + " in " + name);
    }
    long start = windowEnd - window.limit();
    if (position >= start && position <= windowEnd) {
      window.position((int) (position - start));
      return;
    }
    window.position(0).limit(0);
    windowEnd = position;
    isSought = true;
  }

  @Override
  public boolean seekToNewSource(long position) {
    return false;
  }

  @Override
  public synchronized int available() throws IOException {
    checkOpen();
    return (int) Math.min(Integer.MAX_VALUE, size - getPos());
  }

  @Override
  public synchronized int read() throws IOException {
    checkOpen();
    if (getPos() >= size) {
      return -1;
    }
    if (!window.hasRemaining()) {
      fill();
    }
    count(1);
    return window.get() & 0xff;
  }

  @Override
  public synchronized int read(byte[] into, int offset, int length) throws IOException {
    return read(ByteBuffer.wrap(into, offset, length));
  }

  @Override
  public synchronized int read(ByteBuffer into) throws IOException {
    checkOpen();
    if (!into.hasRemaining()) {
      return 0;
    }
    if (getPos() >= size) {
      return -1;
    }
    int read;
    if (!window.hasRemaining() && into.remaining() >= nextWindowBytes()) {
      read = readSome(windowEnd, into);
      window.position(0).limit(0);
      windowEnd += read;
    } else {
      if (!window.hasRemaining()) {
        fill();
      }
      read = Math.min(into.remaining(), window.remaining());
      into.put(window.slice(window.position(), read));
      window.position(window.position() + read);
    }
    count(read);
    return read;
  }

  @Override
  public int read(long position, byte[] into, int offset, int length) throws IOException {
    validatePositionedReadArgs(position, into, offset, length);
    return read(position, ByteBuffer.wrap(into, offset, length));
  }

  @Override
  public void readFully(long position, byte[] into, int offset, int length) throws IOException {
    validatePositionedReadArgs(position, into, offset, length);
    readFully(position, ByteBuffer.wrap(into, offset, length));
  }

  @Override
  public int read(long position, ByteBuffer into) throws IOException {
    checkOpen();
    checkNotNegative(position);
    if (!into.hasRemaining()) {
      return 0;
    }
    if (position >= size) {
      return -1;
    }
    int read = readSome(position, into);
    count(read);
    return read;
  }

  @Override
  public void readFully(long position, ByteBuffer into) throws IOException {
    checkOpen();
    checkNotNegative(position);
    if (position + into.remaining() > size) {
      throw new EOFException(FSExceptionMessages.EOF_IN_READ_FULLY + ": " + name + " has " + size + " bytes");
    }
    int length = into.remaining();
    readAll(position, into);
    count(length);
  }

  @Override
  public int minSeekForVectorReads() {
    return blob.isFar() ? FAR_GAP_BYTES : 0;
  }

  @Override
  public int maxReadSizeForVectorReads() {
    return FAR_WINDOW_BYTES_MAX;
  }

  @Override
  public void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate) throws IOException {
    checkOpen();
    List<? extends FileRange> sorted = VectoredReadUtils.validateAndSortRanges(ranges, Optional.of(size));
    for (FileRange range : sorted) {
      range.setData(new CompletableFuture<>());
    }
    if (blob.isFar()) {
      for (CombinedFileRange several :
          VectoredReadUtils.mergeSortedRanges(sorted, 1, minSeekForVectorReads(), maxReadSizeForVectorReads())) {
        POOL.execute(() -> readCombined(several, allocate));
        several.getUnderlying().forEach(range -> count(range.getLength())); // here: bytes are counted by thread
      }
      return;
    }
    for (FileRange range : sorted) {
      complete(
          range,
          () -> {
            ByteBuffer buffer = allocate.apply(range.getLength());
            readFully(range.getOffset(), buffer);
            buffer.flip();
            return buffer;
          });
    }
  }

  private void readCombined(CombinedFileRange several, IntFunction<ByteBuffer> allocate) {
    try {
      checkOpen();
      ByteBuffer all = ByteBuffer.allocate(several.getLength());
      readAll(several.getOffset(), all);
      for (FileRange range : several.getUnderlying()) {
        complete(
            range,
            () -> {
              int start = (int) (range.getOffset() - several.getOffset());
              ByteBuffer buffer = allocate.apply(range.getLength());
              buffer.put(all.slice(start, range.getLength())).flip();
              return buffer;
            });
      }
    } catch (IOException | RuntimeException error) {
      several.getUnderlying().forEach(range -> range.getData().completeExceptionally(error));
    }
  }

  private interface Reading {
    ByteBuffer read() throws IOException;
  }

  private static void complete(FileRange range, Reading reading) {
    try {
      range.getData().complete(reading.read());
    } catch (IOException | RuntimeException error) {
      range.getData().completeExceptionally(error);
    }
  }

  @Override
  public boolean hasCapability(String capability) {
    return switch (capability.toLowerCase(Locale.ROOT)) {
      case StreamCapabilities.READBYTEBUFFER, StreamCapabilities.PREADBYTEBUFFER, StreamCapabilities.VECTOREDIO -> true;
      default -> false;
    };
  }

  @Override
  public synchronized void close() throws IOException {
    if (!isClosed) {
      isClosed = true;
      window = ByteBuffer.allocate(0);
      blob.close();
    }
  }

  @Override
  public String toString() {
    return name;
  }

  /** Read the next window. There is something left to read. */
  private void fill() throws IOException {
    int wanted = (int) Math.min(nextWindowBytes(), size - windowEnd);
    ByteBuffer next = window.capacity() >= wanted ? window.clear().limit(wanted) : ByteBuffer.allocate(wanted);
    window = next;
    try {
      readAll(windowEnd, next);
    } catch (IOException | RuntimeException error) {
      window.position(0).limit(0);
      throw error;
    }
    next.flip();
    windowEnd += wanted;
    windowBytes = Math.max(wanted, NEAR_WINDOW_BYTES);
    isSought = false;
  }

  private int nextWindowBytes() {
    if (!blob.isFar()) {
      return NEAR_WINDOW_BYTES;
    }
    if (isSought) {
      return FAR_WINDOW_BYTES_MIN;
    }
    return Math.min(FAR_WINDOW_BYTES_MAX, Math.max(FAR_WINDOW_BYTES_MIN, 2 * windowBytes));
  }

  private void readAll(long position, ByteBuffer into) throws IOException {
    for (long at = position; into.hasRemaining(); ) {
      at += readSome(at, into);
    }
  }

  /** Not beyond the object's end, whatever its blob has. */
  private int readSome(long position, ByteBuffer into) throws IOException {
    int most = (int) Math.min(into.remaining(), size - position);
    ByteBuffer part = into.slice(into.position(), most);
    int read = blob.read(position, part);
    into.position(into.position() + read);
    return read;
  }

  private void count(int bytes) {
    if (statistics != null) {
      statistics.incrementBytesRead(bytes);
    }
  }

  private void checkOpen() throws IOException {
    if (isClosed) {
      throw new IOException(name + ": " + FSExceptionMessages.STREAM_IS_CLOSED);
    }
  }

  private void checkNotNegative(long position) throws IOException {
    if (position < 0) {
      throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK + ": " + position + " in " + name);
    }
  }
}
