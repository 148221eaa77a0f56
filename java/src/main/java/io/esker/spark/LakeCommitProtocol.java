package io.esker.spark;

import io.esker.hadoop.LakeException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.SparkContext;
import org.apache.spark.internal.io.FileNameSpec;
import org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;

/**
 * Commits what Spark writes to {@code lakefs://} in one commit of the branch, or not at all; to other places, as Spark
 * does.
 *
 * <p>Nothing is changed before {@link #commitJob}: what is to be deleted is remembered, and tasks write blobs that
 * nothing names. So readers see the old state or the new one, and whatever dies leaves garbage, and never damage.
 */
public final class LakeCommitProtocol extends SQLHadoopMapReduceCommitProtocol {
  private static final long serialVersionUID = 1L;
  private static final Logger LOG = LoggerFactory.getLogger(LakeCommitProtocol.class);

  private final String path;
  private final boolean dynamic;

  /** Travels to the tasks. */
  private LakeJob job;

  private transient List<Path> deleted;
  private transient Heartbeat heartbeat;
  private transient WritePlan plan;
  private transient Attempt attempt;

  /** As Spark makes it. Spark makes some that it never uses. */
  public LakeCommitProtocol(String jobId, String path, boolean dynamicPartitionOverwrite) {
    super(jobId, path, dynamicPartitionOverwrite);
    this.path = path;
    this.dynamic = dynamicPartitionOverwrite;
  }

  private boolean isOurs() {
    return Place.isLake(path);
  }

  private Place target() {
    return Place.of(new Path(path));
  }

  /** Called before the job is set up. */
  @Override
  public boolean deleteWithJob(FileSystem fs, Path place, boolean recursive) {
    if (!isOurs()) {
      return super.deleteWithJob(fs, place, recursive);
    }
    if (deleted == null) {
      deleted = new ArrayList<>();
    }
    deleted.add(place);
    return true;
  }

  @Override
  public void setupJob(JobContext context) {
    if (!isOurs()) {
      super.setupJob(context);
      return;
    }
    Configuration conf = context.getConfiguration();
    plan = WritePlan.running(SparkContext.getOrCreate(), path);
    if (plan.replacesAll() && target().path.isEmpty() && !conf.getBoolean(Publication.FORCE, false)) {
      throw new IllegalArgumentException(
          target() + " is all of the branch, and this would replace every table in it: write to a directory, or set "
              + Publication.FORCE + " to true");
    }
    try {
      job = LakeJob.start(conf, target(), UUID.randomUUID().toString());
    } catch (IOException error) {
      throw new UncheckedIOException(error.getMessage(), error);
    }
    heartbeat = new Heartbeat(job, conf);
    TaskLuggage.lighten(conf);
  }

  @Override
  public void setupTask(TaskAttemptContext context) {
    if (!isOurs()) {
      super.setupTask(context);
      return;
    }
    try {
      attempt = Attempt.begin(UUID.randomUUID().toString(), job, target().prefix(), context.getConfiguration());
    } catch (IOException error) {
      throw new UncheckedIOException(error.getMessage(), error);
    }
  }

  @Override
  public String newTaskTempFile(TaskAttemptContext context, Option<String> directory, FileNameSpec name) {
    if (!isOurs()) {
      return super.newTaskTempFile(context, directory, name);
    }
    String inside = target().prefix() + (directory.isDefined() ? directory.get() + "/" : "");
    if (directory.isDefined()) {
      attempt.replaces(inside);
    }
    return attempt.newFile(inside + getFilename(context, name));
  }

  @Override
  public String newTaskTempFileAbsPath(TaskAttemptContext context, String directory, FileNameSpec name) {
    if (!isOurs()) {
      return super.newTaskTempFileAbsPath(context, directory, name);
    }
    try {
      Place inside = new Publication(target()).here(new Path(directory));
      attempt.replaces(inside.prefix());
      return attempt.newFile(inside.prefix() + getFilename(context, name));
    } catch (IOException error) {
      throw new UncheckedIOException(error.getMessage(), error);
    }
  }

  @Override
  public TaskCommitMessage commitTask(TaskAttemptContext context) {
    if (!isOurs()) {
      return super.commitTask(context);
    }
    try {
      return new TaskCommitMessage(attempt.commit().bytes());
    } catch (IOException error) {
      throw new UncheckedIOException(error.getMessage(), error);
    }
  }

  @Override
  public void abortTask(TaskAttemptContext context) {
    if (!isOurs()) {
      super.abortTask(context);
    } else if (attempt != null) {
      attempt.abort();
    }
  }

  @Override
  public void commitJob(JobContext context, scala.collection.immutable.Seq<TaskCommitMessage> messages) {
    if (!isOurs()) {
      super.commitJob(context, messages);
      return;
    }
    try {
      commit(context.getConfiguration(), messages);
    } catch (IOException error) {
      throw new UncheckedIOException(error.getMessage(), error);
    }
  }

  private void commit(Configuration conf, scala.collection.immutable.Seq<TaskCommitMessage> messages)
      throws IOException {
    Publication publication = new Publication(target());
    TreeSet<String> written = new TreeSet<>();
    scala.collection.Iterator<TaskCommitMessage> each = messages.iterator();
    while (each.hasNext()) {
      Manifest manifest = Manifest.of((byte[]) each.next().obj());
      publication.add(manifest);
      written.addAll(manifest.directories);
    }
    if (deleted != null) {
      for (Path place : deleted) {
        publication.delete(publication.here(place));
      }
    }
    if (plan.replacesAll()) {
      publication.delete(target());
    }
    if (dynamic) {
      written.forEach(publication::deleteUnder);
    }
    if (plan.expectsEmpty()) {
      publication.expectEmpty(target());
    }
    publication.describe(Lineage.of(SparkContext.getOrCreate()));
    publication.describe(plan.lineage());
    try {
      String commit = publication.send(job, conf);
      LOG.info("{} is {} of {} now", path, commit, job.repo);
      heartbeat.close();
    } catch (LakeException refused) {
      if (!plan.yields() || !refused.kind().equals("object-exists")) {
        throw refused;
      }
      LOG.info("{} is there by now, and stays as it is", path);
      abort(conf);
    }
  }

  @Override
  public void abortJob(JobContext context) {
    if (!isOurs()) {
      super.abortJob(context);
    } else if (job != null) {
      abort(context.getConfiguration());
    }
  }

  /** That it cannot be done fails nothing: a job that gives no sign of life is aborted by whoever cleans up. */
  private void abort(Configuration conf) {
    if (heartbeat != null) {
      heartbeat.close();
    }
    try {
      String commit = job.abort(conf);
      if (commit != null) {
        LOG.warn("job {} failed, but had been published: {} is {} of {} now", job.id, path, commit, job.repo);
      }
    } catch (IOException error) {
      LOG.warn("job {} of {} could not be aborted, and ends by itself: {}", job.id, job.repo, error.getMessage());
    }
  }
}
