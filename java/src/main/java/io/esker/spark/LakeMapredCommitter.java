package io.esker.spark;

import java.io.IOException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapred.FileOutputCommitter;
import org.apache.hadoop.mapred.FileOutputFormat;
import org.apache.hadoop.mapred.JobContext;
import org.apache.hadoop.mapred.JobStatus;
import org.apache.hadoop.mapred.TaskAttemptContext;

/**
 * The same for Hadoop's older interface, whose committer is one for all places: to those that are not in a lake it does
 * what its parent does.
 */
public final class LakeMapredCommitter extends FileOutputCommitter {
  private LakeOutputCommitter committer;

  /** Null for places that are not in a lake. */
  private LakeOutputCommitter ours(org.apache.hadoop.mapreduce.JobContext context, TaskAttemptContext task)
      throws IOException {
    Path output = FileOutputFormat.getOutputPath((org.apache.hadoop.mapred.JobConf) context.getConfiguration());
    if (output == null || !Place.isLake(output.toString())) {
      return null;
    }
    if (committer == null) {
      committer = new LakeOutputCommitter(output, context, task);
    }
    return committer;
  }

  @Override
  public Path getWorkPath(TaskAttemptContext context, Path output) throws IOException {
    LakeOutputCommitter ours = ours(context, context);
    return ours == null ? super.getWorkPath(context, output) : ours.getWorkPath();
  }

  @Override
  public void setupJob(JobContext context) throws IOException {
    LakeOutputCommitter ours = ours(context, null);
    if (ours == null) {
      super.setupJob(context);
    } else {
      ours.setupJob(context);
    }
  }

  @Override
  public void commitJob(JobContext context) throws IOException {
    LakeOutputCommitter ours = ours(context, null);
    if (ours == null) {
      super.commitJob(context);
    } else {
      ours.commitJob(context);
    }
  }

  @Override
  public void abortJob(JobContext context, int state) throws IOException {
    LakeOutputCommitter ours = ours(context, null);
    if (ours == null) {
      super.abortJob(context, state);
    } else {
      boolean failed = state == JobStatus.FAILED;
      ours.abortJob(
          context,
          failed
              ? org.apache.hadoop.mapreduce.JobStatus.State.FAILED
              : org.apache.hadoop.mapreduce.JobStatus.State.KILLED);
    }
  }

  @Override
  public void setupTask(TaskAttemptContext context) throws IOException {
    LakeOutputCommitter ours = ours(context, context);
    if (ours == null) {
      super.setupTask(context);
    } else {
      ours.setupTask(context);
    }
  }

  @Override
  public boolean needsTaskCommit(TaskAttemptContext context) throws IOException {
    LakeOutputCommitter ours = ours(context, context);
    return ours == null ? super.needsTaskCommit(context) : ours.needsTaskCommit(context);
  }

  @Override
  public void commitTask(TaskAttemptContext context) throws IOException {
    LakeOutputCommitter ours = ours(context, context);
    if (ours == null) {
      super.commitTask(context);
    } else {
      ours.commitTask(context);
    }
  }

  @Override
  public void abortTask(TaskAttemptContext context) throws IOException {
    LakeOutputCommitter ours = ours(context, context);
    if (ours == null) {
      super.abortTask(context);
    } else {
      ours.abortTask(context);
    }
  }

  @Override
  public boolean isRecoverySupported(JobContext context) throws IOException {
    LakeOutputCommitter ours = ours(context, null);
    return ours == null ? super.isRecoverySupported(context) : ours.isRecoverySupported(context);
  }

  @Override
  public void recoverTask(TaskAttemptContext context) throws IOException {
    LakeOutputCommitter ours = ours(context, context);
    if (ours == null) {
      super.recoverTask(context);
    } else {
      ours.recoverTask(context);
    }
  }
}
