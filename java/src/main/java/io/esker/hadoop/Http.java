package io.esker.hadoop;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.ConnectException;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandler;
import java.net.http.HttpResponse.BodySubscribers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import javax.net.ssl.SSLException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Sends requests over connections that are kept, and shared by all of the process.
 *
 * <p>A request that certainly was not done (429, 503, nobody listens) is sent again for a while, with growing pauses.
 * One that may have been done is sent again only if doing it twice is the same as once.
 */
final class Http {
  private static final Logger LOG = LoggerFactory.getLogger(Http.class);

  /** Long enough for a server to be started again. */
  private static final Duration PATIENCE = Duration.ofSeconds(60);

  static final Duration ANSWER_TIMEOUT = Duration.ofSeconds(120);

  private static final long SLOW_BYTES_PER_S = 500_000;

  private static final long PAUSE_MIN_MS = 50;
  private static final long PAUSE_MAX_MS = 4_000;

  /** Tries that nobody is told of. */
  private static final int QUIET_TRIES = 3;

  private static final HttpClient CLIENT =
      HttpClient.newBuilder()
          .version(HttpClient.Version.HTTP_1_1)
          .connectTimeout(Duration.ofSeconds(10))
          .followRedirects(HttpClient.Redirect.NEVER)
          .build();

  private Http() {}

  /** How long to wait for an answer to so many bytes, over a line that is slow. */
  static Duration patience(long sent) {
    return ANSWER_TIMEOUT.plusSeconds(sent / SLOW_BYTES_PER_S);
  }

  /** The answer, if it is a good one. LakeException if it is not, another IOException if there was none. */
  static <T> HttpResponse<T> send(HttpRequest request, BodyHandler<T> handler, boolean idempotent) throws IOException {
    return send(request, handler, idempotent, PATIENCE);
  }

  static <T> HttpResponse<T> send(
      HttpRequest request, BodyHandler<T> handler, boolean idempotent, Duration patience) throws IOException {
    List<byte[]> refusal = new ArrayList<>(1);
    BodyHandler<T> reading =
        info ->
            info.statusCode() < 300
                ? handler.apply(info)
                : BodySubscribers.mapping(
                    BodySubscribers.ofByteArray(),
                    said -> {
                      refusal.add(said);
                      return null;
                    });
    long deadline = System.nanoTime() + patience.toNanos();
    for (int tried = 1; ; tried++) {
      IOException failure;
      boolean again;
      long leastMs = 0;
      refusal.clear();
      try {
        HttpResponse<T> answer = CLIENT.send(request, reading);
        int status = answer.statusCode();
        if (status < 300) {
          return answer;
        }
        failure = refused(request, status, refusal.isEmpty() ? new byte[0] : refusal.get(0));
        again = status == 429 || status == 503 || idempotent && (status == 502 || status == 504);
        leastMs = answer.headers().firstValue("Retry-After").map(Http::retryAfterMs).orElse(0L);
      } catch (ConnectException | HttpConnectTimeoutException error) {
        failure = unanswered(request, error);
        again = true;
      } catch (IOException error) {
        failure = unanswered(request, error);
        again = idempotent && !(error instanceof SSLException);
      } catch (InterruptedException error) {
        throw interrupted(request, error);
      }
      long pauseMs = Math.max(leastMs, pauseMs(tried));
      if (!again || System.nanoTime() + pauseMs * 1_000_000 > deadline) {
        throw failure;
      }
      if (tried == QUIET_TRIES) {
        LOG.warn("{}; trying again for {} s", failure.getMessage(), patience.toSeconds());
      }
      try {
        Thread.sleep(pauseMs);
      } catch (InterruptedException error) {
        throw interrupted(request, error);
      }
    }
  }

  /** Of seconds. A date, as some proxies send, is no reason to wait longer than one would. */
  private static long retryAfterMs(String said) {
    return said.matches("[0-9]{1,4}") ? Long.parseLong(said) * 1000 : 0;
  }

  /** Growing, and spread: those that were refused together do not come back together. */
  private static long pauseMs(int tried) {
    long most = Math.min(PAUSE_MAX_MS, PAUSE_MIN_MS << Math.min(tried, 10));
    return most / 2 + ThreadLocalRandom.current().nextLong(most / 2 + 1);
  }

  private static LakeException refused(HttpRequest request, int status, byte[] body) {
    String message = new String(body, StandardCharsets.UTF_8);
    String kind = "";
    List<String> paths = new ArrayList<>();
    try {
      JsonNode said = LakeClient.JSON.readTree(body);
      if (said != null && said.hasNonNull("message")) {
        message = said.get("message").asText();
        kind = said.path("kind").asText("");
        said.path("conflicts").forEach(path -> paths.add(path.asText()));
      }
    } catch (IOException notJson) {
      // A store or a proxy answered, in words of its own.
    }
    if (message.isBlank() || kind.isEmpty()) {
      message = request.method() + " " + where(request) + " was answered with " + status + ": " + message;
    }
    return new LakeException(status, kind, message, paths);
  }

  private static IOException unanswered(HttpRequest request, IOException error) {
    String why = error.getMessage();
    if (error instanceof ConnectException) {
      why = error.getCause() == null ? "nobody listens there" : "it cannot be reached";
    }
    return new IOException("no answer from " + where(request) + ": " + why, error);
  }

  private static InterruptedIOException interrupted(HttpRequest request, InterruptedException error) {
    Thread.currentThread().interrupt();
    InterruptedIOException told = new InterruptedIOException("interrupted while waiting for " + where(request));
    told.initCause(error);
    return told;
  }

  /** The URL as far as it is no secret: what follows may be a signature. */
  private static String where(HttpRequest request) {
    return request.uri().getScheme() + "://" + request.uri().getAuthority();
  }
}
