package io.esker.hadoop;

import java.io.EOFException;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.time.Duration;

/** Reads ranges of a blob by signed URLs, each asked for when the one before expires. */
final class RemoteReader implements BlobReader {
  private static final int PIECE_BYTES_MAX = 8 << 20;

  private static final Duration ANSWER_TIMEOUT = Duration.ofSeconds(60);

  private static final int FORBIDDEN = 403;
  private static final int PARTIAL = 206;

  /** Where a blob can be read from. */
  interface Source {
    /** A URL that is good for a while; with {@code fresh}, another than the one before. */
    URI url(boolean fresh) throws IOException;
  }

  private final Source source;

  RemoteReader(Source source) {
    this.source = source;
  }

  @Override
  public int read(long position, ByteBuffer into) throws IOException {
    int length = Math.min(into.remaining(), PIECE_BYTES_MAX);
    try {
      byte[] bytes = get(position, length);
      into.put(bytes);
      return bytes.length;
    } catch (LakeException error) {
      throw error.asHadoop();
    }
  }

  private byte[] get(long position, int length) throws IOException {
    try {
      return get(source.url(false), position, length);
    } catch (LakeException error) {
      if (error.status() != FORBIDDEN) {
        throw error;
      }
      return get(source.url(true), position, length); // it was signed too long ago
    }
  }

  private static byte[] get(URI url, long position, int length) throws IOException {
    HttpRequest request =
        HttpRequest.newBuilder(url)
            .timeout(ANSWER_TIMEOUT)
            .header("Range", "bytes=" + position + "-" + (position + length - 1))
            .build();
    HttpResponse<byte[]> answer = Http.send(request, BodyHandlers.ofByteArray(), true);
    byte[] bytes = answer.body();
    if (answer.statusCode() != PARTIAL && position != 0 || bytes.length == 0 || bytes.length > length) {
      throw new EOFException(
          "a store answered a request for " + length + " bytes from " + position + " on with " + bytes.length);
    }
    return bytes;
  }

  @Override
  public boolean isFar() {
    return true;
  }

  @Override
  public void close() {}
}
