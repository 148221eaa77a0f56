package io.esker.spark;

import com.fasterxml.jackson.databind.JsonNode;
import io.esker.hadoop.JobBlobs;
import io.esker.hadoop.LakeClient;
import io.esker.hadoop.LakeException;
import java.io.IOException;
import java.io.Serializable;
import java.net.URI;
import java.net.http.HttpRequest.BodyPublishers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;

/**
 * A job at the server, as all that write for it know it: started once, published in one call or not at all.
 *
 * <p>Every call of it may be repeated, since the server knows the job by its id. So a lost answer is asked for again.
 */
final class LakeJob implements Serializable {
  private static final long serialVersionUID = 1L;

  /** Publishing lists and links all files of a job: a few seconds for a hundred thousand. */
  private static final Duration PUBLISH_TIMEOUT = Duration.ofMinutes(15);

  /** An empty blob that is there from the start: who sees it as a file sees the store. It ends as the file that says
   * so when a job is done, where people want one. */
  static final String PROBE = "_SUCCESS";

  final String repo;
  final String id;

  /** What addresses of its blobs begin with. */
  final String data;

  /** The same as a URL of the store. */
  final String physicalPrefix;

  /** Where its blobs can be uploaded by whoever cannot reach the store. */
  final String uploadPrefix;

  /** Of a transaction: what its jobs are published to. */
  final String ownBranch;

  private LakeJob(String repo, JsonNode said) {
    this.repo = repo;
    this.id = said.get("id").asText();
    this.data = said.get("data").asText();
    this.physicalPrefix = said.get("physical_prefix").asText();
    this.uploadPrefix = said.get("upload_prefix").asText();
    this.ownBranch = said.path("own_branch").asText(null);
  }

  /** The job of that id, started now unless it has been. */
  static LakeJob start(Configuration conf, Place target, String id) throws IOException {
    LakeJob job = start(conf, target.repo, target.branch, id, false);
    JobBlobs.upload(URI.create(job.uploadPrefix + PROBE), BodyPublishers.noBody());
    return job;
  }

  /** A transaction: other jobs are published to a branch of its own, and then it with all of them. */
  static LakeJob transaction(Configuration conf, String repo, String branch, String id) throws IOException {
    return start(conf, repo, branch, id, true);
  }

  private static LakeJob start(Configuration conf, String repo, String branch, String id, boolean transaction)
      throws IOException {
    return new LakeJob(
        repo,
        LakeClient.of(conf)
            .post("repositories", repo, "branches", branch, "jobs")
            .body(Map.of("id", id, "transaction", transaction))
            .idempotent()
            .send());
  }

  /** A job that somebody else started. */
  static LakeJob get(Configuration conf, String repo, String id) throws IOException {
    return new LakeJob(repo, LakeClient.of(conf).get("repositories", repo, "jobs", id).send());
  }

  void beat(Configuration conf) throws IOException {
    call(conf, "beat").send();
  }

  /** URLs to upload blobs of these names to, good for a while. */
  List<URI> uploads(Configuration conf, List<String> names) throws IOException {
    List<URI> found = new ArrayList<>();
    JsonNode said = call(conf, "uploads").body(Map.of("names", names)).send();
    said.path("urls").forEach(url -> found.add(URI.create(url.asText())));
    return found;
  }

  /** What a task wrote, kept at the server until the job is published; again for one that ran again. */
  void commitTask(Configuration conf, String task, byte[] entries) throws IOException {
    LakeClient.of(conf).put("repositories", repo, "jobs", id, "tasks", task).body(entries).idempotent().send();
  }

  /**
   * The commit that shows all of it. If no answer can be had, the job is ended: when that tells that it had been
   * published after all, so be it; else nothing of it will ever be seen.
   */
  String publish(Configuration conf, byte[] publication) throws IOException {
    try {
      JsonNode said = call(conf, "publish").body(publication).timeout(PUBLISH_TIMEOUT).send();
      return said.get("reference").asText();
    } catch (LakeException refused) {
      if (refused.status() != 504) {
        throw refused;
      }
      return published(conf, refused);
    } catch (IOException unanswered) {
      return published(conf, unanswered);
    }
  }

  private String published(Configuration conf, IOException failure) throws IOException {
    String commit;
    try {
      commit = abort(conf);
    } catch (IOException error) {
      failure.addSuppressed(error);
      throw new IOException(
          "nobody knows whether job " + id + " of " + repo + " was published; once the server answers, its record tells",
          failure);
    }
    if (commit == null) {
      throw failure;
    }
    return commit;
  }

  /** End it, unless it was published: then the commit that shows it, else null. */
  String abort(Configuration conf) throws IOException {
    JsonNode said = call(conf, "abort").send();
    return said.path("state").asText().equals("published") ? said.path("reference").asText(null) : null;
  }

  private LakeClient.Call call(Configuration conf, String verb) throws IOException {
    return LakeClient.of(conf).post("repositories", repo, "jobs", id, verb).idempotent();
  }
}
