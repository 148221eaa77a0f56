package io.esker.spark;

import io.esker.hadoop.LakeException;
import java.io.IOException;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.JobStatus;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitter;

/**
 * Commits what Hadoop's output formats write to {@code lakefs://} in one commit of the branch, or not at all.
 *
 * <p>Job and tasks share nothing but what they are called. So the job is found by that, and each task tells the server
 * what it wrote, in one call; of a task that commits again, the last word counts.
 */
public final class LakeOutputCommitter extends PathOutputCommitter {
  /** Set by Spark, for a driver whose job Hadoop has no id for; but where Hadoop has one, not always for its tasks. */
  private static final String WRITE_UUID = "spark.sql.sources.writeJobUUID";

  private static final int REMEMBERED_MAX = 100;

  /** Of this process, so that a task asks for its job only if it is the first here. */
  private static final Map<String, LakeJob> JOBS =
      Collections.synchronizedMap(
          new LinkedHashMap<>() {
            private static final long serialVersionUID = 1L;

            @Override
            protected boolean removeEldestEntry(Map.Entry<String, LakeJob> eldest) {
              return size() > REMEMBERED_MAX;
            }
          });

  private final Path output;
  private final Place target;
  private final Path work;
  private Heartbeat heartbeat;

  public LakeOutputCommitter(Path output, TaskAttemptContext context) throws IOException {
    this(output, context, context);
  }

  /** Without a task, of the job alone. */
  LakeOutputCommitter(Path output, JobContext context, TaskAttemptContext task) throws IOException {
    super(output, context);
    this.output = output;
    this.target = Place.of(output);
    this.work = task == null ? null : Attempt.work(attemptId(task));
    JobFileSystem.announce(context.getConfiguration());
  }

  @Override
  public Path getOutputPath() {
    return output;
  }

  @Override
  public Path getWorkPath() {
    return work;
  }

  @Override
  public void setupJob(JobContext context) throws IOException {
    LakeJob job = LakeJob.start(context.getConfiguration(), target, jobId(context));
    JOBS.put(job.id, job);
    heartbeat = new Heartbeat(job, context.getConfiguration());
  }

  @Override
  public void setupTask(TaskAttemptContext context) throws IOException {
    Attempt.begin(attemptId(context), job(context), target.prefix(), context.getConfiguration());
  }

  @Override
  public boolean needsTaskCommit(TaskAttemptContext context) {
    return true;
  }

  @Override
  public void commitTask(TaskAttemptContext context) throws IOException {
    Manifest manifest = Attempt.of(Attempt.work(attemptId(context))).commit();
    String task = context.getTaskAttemptID().getTaskID().toString();
    job(context).commitTask(context.getConfiguration(), task, manifest.bytes());
  }

  @Override
  public void abortTask(TaskAttemptContext context) throws IOException {
    Attempt.end(attemptId(context));
  }

  @Override
  public void commitJob(JobContext context) throws IOException {
    Publication publication = new Publication(target);
    publication.addTasks();
    publication.describe(Lineage.of(context));
    publication.send(job(context), context.getConfiguration());
    forget(context);
  }

  @Override
  public void abortJob(JobContext context, JobStatus.State state) throws IOException {
    forget(context);
    LakeJob.get(context.getConfiguration(), target.repo, jobId(context)).abort(context.getConfiguration());
  }

  /** The server knows a job that it has published. */
  @Override
  public boolean isCommitJobRepeatable(JobContext context) {
    return true;
  }

  /** What tasks wrote is at the server. */
  @Override
  public boolean isRecoverySupported(JobContext context) {
    return true;
  }

  @Override
  public void recoverTask(TaskAttemptContext context) {
    // It is recovered already: its last word is at the server.
  }

  /** By the first of its names that somebody has started a job by. */
  private LakeJob job(JobContext context) throws IOException {
    List<String> names = names(context);
    for (String name : names) {
      LakeJob known = JOBS.get(name);
      if (known != null) {
        return known;
      }
    }
    LakeException none = null;
    for (String name : names) {
      try {
        LakeJob found = LakeJob.get(context.getConfiguration(), target.repo, name);
        JOBS.put(name, found);
        return found;
      } catch (LakeException error) {
        if (!error.kind().equals("job-not-found")) {
          throw error;
        }
        none = error;
      }
    }
    throw none;
  }

  private void forget(JobContext context) throws IOException {
    JOBS.remove(jobId(context));
    if (heartbeat != null) {
      heartbeat.close();
    }
  }

  private static String attemptId(TaskAttemptContext context) throws IOException {
    return jobId(context) + "-" + context.getTaskAttemptID();
  }

  /** What a driver calls its job. */
  private static String jobId(JobContext context) throws IOException {
    return names(context).get(0);
  }

  private static List<String> names(JobContext context) throws IOException {
    String ofHadoop = context.getJobID() == null ? null : context.getJobID().toString();
    List<String> names =
        Stream.of(ofHadoop, context.getConfiguration().get(WRITE_UUID)).filter(Objects::nonNull).toList();
    if (names.isEmpty()) {
      throw new IOException("a job without an id cannot be committed: set " + WRITE_UUID + " to one, the same for all tasks");
    }
    return names;
  }
}
