package io.esker.spark;

import io.esker.hadoop.JobBlobs;
import java.io.IOException;
import java.net.URI;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.hadoop.conf.Configuration;

/**
 * The blobs of one attempt of a task, by their numbers, and where they are uploaded to: by URLs that the store itself
 * takes, if it does. These are asked for together with those of blobs that may follow: the more there were, the more.
 */
final class Uploads {
  private static final int ASKED_MIN = 10;
  private static final int ASKED_MAX = 1000;

  /** Less than the URLs are. */
  private static final long GOOD_NANOS = Duration.ofMinutes(10).toNanos();

  private final LakeJob job;
  private final String nonce;
  private final Configuration conf;
  private final Map<Integer, URI> urls = new HashMap<>();
  private long askedNanos;

  /** {@code nonce} is in the names of its blobs, and of nobody else's. */
  Uploads(LakeJob job, String nonce, Configuration conf) {
    this.job = job;
    this.nonce = nonce;
    this.conf = conf;
  }

  /** What the blob is called, below the job's address. */
  String name(int number) {
    return nonce + "-" + number;
  }

  synchronized URI target(int number, long size) throws IOException {
    if (!JobBlobs.takesUploads(job.physicalPrefix, size)) {
      return URI.create(job.uploadPrefix + name(number));
    }
    if (!urls.containsKey(number) || System.nanoTime() - askedNanos > GOOD_NANOS) {
      ask(number);
    }
    return urls.remove(number);
  }

  private void ask(int first) throws IOException {
    int many = Math.min(ASKED_MAX, Math.max(ASKED_MIN, 10 * first));
    List<String> names = IntStream.range(first, first + many).mapToObj(this::name).toList();
    askedNanos = System.nanoTime();
    List<URI> signed = job.uploads(conf, names);
    urls.clear();
    for (int at = 0; at < many; at++) {
      urls.put(first + at, signed.get(at));
    }
  }
}
