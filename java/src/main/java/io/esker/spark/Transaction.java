package io.esker.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.esker.hadoop.Entries;
import io.esker.hadoop.LakeClient;
import io.esker.hadoop.LakeException;
import java.io.IOException;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkContext;

/** Several writes that appear together, or not at all: what {@code esker.spark.transaction} is made of. */
public final class Transaction {
  private final LakeJob job;
  private final String branch;
  private final Configuration conf;
  private final Heartbeat heartbeat;

  private Transaction(LakeJob job, String branch, Configuration conf) {
    this.job = job;
    this.branch = branch;
    this.conf = conf;
    this.heartbeat = new Heartbeat(job, conf);
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

  /** Make it all visible: the commit. */
  public String publish(SparkContext context, String message, String metadataJson, boolean force) throws IOException {
    ObjectNode body = LakeClient.JSON.createObjectNode();
    ObjectNode metadata = body.putObject("metadata");
    for (Map.Entry<String, String> said : Lineage.of(context).entrySet()) {
      metadata.put(said.getKey(), said.getValue());
    }
    LakeClient.JSON.readerForUpdating(metadata).readValue(metadataJson);
    body.put("message", message).put("force", force);
    try {
      String commit = job.publish(conf, LakeClient.JSON.writeValueAsBytes(body));
      heartbeat.close();
      return commit;
    } finally {
      Entries.of(LakeClient.of(conf), job.repo).changed(branch);
    }
  }

  /** End it: null, or the commit if it had been published. */
  public String abort() throws IOException {
    heartbeat.close();
    return job.abort(conf);
  }
}
