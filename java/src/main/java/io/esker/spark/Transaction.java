package io.esker.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.esker.hadoop.Entries;
import io.esker.hadoop.LakeClient;
import io.esker.hadoop.LakeException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkContext;

/** Several writes that appear together, or not at all: what {@code esker.spark.transaction} is made of. */
public final class Transaction {
  private static final int NAMED_MAX = 5;

  /** Those that run in this process, by repository and own branch: so jobs find the one that they are part of. */
  private static final Map<List<String>, Transaction> RUNNING = new ConcurrentHashMap<>();

  private final LakeJob job;
  private final String branch;
  private final Configuration conf;
  private final Heartbeat heartbeat;

  /** What its jobs said of what they wrote. */
  private final List<Map<String, String>> written = new ArrayList<>();

  private final TreeSet<String> tables = new TreeSet<>();

  private Transaction(LakeJob job, String branch, Configuration conf) {
    this.job = job;
    this.branch = branch;
    this.conf = conf;
    this.heartbeat = new Heartbeat(job, conf);
    RUNNING.put(List.of(job.repo, job.ownBranch), this);
  }

  public static Transaction begin(Configuration conf, String repo, String branch) throws IOException {
    return new Transaction(LakeJob.transaction(conf, repo, branch, UUID.randomUUID().toString()), branch, conf);
  }

  /**
   * The transaction that is known by an id, from its beginning, whatever became of it before; null if it was published.
   * Of tries at the same time, the last to begin is the one that goes on.
   */
  public static Transaction beginOnce(Configuration conf, String repo, String branch, String id) throws IOException {
    try {
      if (LakeJob.get(conf, repo, id).abort(conf) != null) {
        return null;
      }
    } catch (LakeException none) {
      if (!none.kind().equals("job-not-found")) {
        throw none;
      }
    }
    return new Transaction(LakeJob.transaction(conf, repo, branch, id), branch, conf);
  }

  public String id() {
    return job.id;
  }

  /** The branch to read and write in it. */
  public String branch() {
    return job.ownBranch;
  }

  /** To be told of each job that is published: if it is part of one of these, that tells of it in its commit. */
  static void wrote(Place target, Map<String, String> said) {
    Transaction found = RUNNING.get(List.of(target.repo, target.branch));
    if (found != null) {
      found.add(target, said);
    }
  }

  private synchronized void add(Place target, Map<String, String> said) {
    written.add(said);
    tables.add(target.name());
  }

  /** What all of its jobs have counted, in sum. */
  private synchronized void count(ObjectNode metadata) {
    for (String name : Publication.COUNTS) {
      if (written.stream().allMatch(said -> said.containsKey(name))) {
        metadata.put(name, Long.toString(written.stream().mapToLong(said -> Long.parseLong(said.get(name))).sum()));
      }
    }
  }

  private synchronized String message() {
    if (tables.isEmpty()) {
      return "Transaction " + job.id;
    }
    String more = tables.size() > NAMED_MAX ? " and " + (tables.size() - NAMED_MAX) + " more" : "";
    return "Spark: write " + String.join(", ", tables.stream().limit(NAMED_MAX).toList()) + more;
  }

  /** Make it all visible: the commit. Its message, if it is empty, names the tables. */
  public String publish(SparkContext context, String message, String metadataJson, boolean force) throws IOException {
    ObjectNode body = LakeClient.JSON.createObjectNode();
    ObjectNode metadata = body.putObject("metadata");
    for (Map.Entry<String, String> said : Lineage.of(context).entrySet()) {
      metadata.put(said.getKey(), said.getValue());
    }
    count(metadata);
    LakeClient.JSON.readerForUpdating(metadata).readValue(metadataJson);
    body.put("message", message.isEmpty() ? message() : message).put("force", force);
    try {
      String commit = job.publish(conf, LakeClient.JSON.writeValueAsBytes(body));
      close();
      return commit;
    } finally {
      Entries.of(LakeClient.of(conf), job.repo).changed(branch);
    }
  }

  /** End it: null, or the commit if it had been published. */
  public String abort() throws IOException {
    close();
    return job.abort(conf);
  }

  private void close() {
    heartbeat.close();
    RUNNING.remove(List.of(job.repo, job.ownBranch), this);
  }
}
