package io.esker.spark;

import java.io.IOException;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.JobStatus;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitter;
import org.apache.spark.SparkContext$;

/**
 * Commits what Hadoop's output formats write to {@code lakefs://} in one commit of the branch, or not at all.
 *
 * <p>Job and tasks share nothing but their configuration. So the job is found by the id that this has, and each task
 * tells the server what it wrote, in one call; of a task that commits again, the last word counts.
 */
public final class LakeOutputCommitter extends PathOutputCommitter {
  /** Set by Spark, the same for a job and its tasks. */
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
    if (SparkContext$.MODULE$.getActive().isDefined()) {
      publication.describe(Lineage.of(SparkContext$.MODULE$.getActive().get()));
    }
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

  private LakeJob job(JobContext context) throws IOException {
    String id = jobId(context);
    LakeJob known = JOBS.get(id);
    if (known == null) {
      known = LakeJob.get(context.getConfiguration(), target.repo, id);
      JOBS.put(id, known);
    }
    return known;
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

  private static String jobId(JobContext context) throws IOException {
    Configuration conf = context.getConfiguration();
    String id = conf.get(WRITE_UUID, context.getJobID() == null ? "" : context.getJobID().toString());
    if (id.isEmpty()) {
      throw new IOException("a job without an id cannot be committed: set " + WRITE_UUID + " to one, the same for all tasks");
    }
    return id;
  }
}
