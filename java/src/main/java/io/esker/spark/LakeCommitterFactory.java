package io.esker.spark;

import java.io.IOException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitter;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitterFactory;

/** Makes the committers of Hadoop's output formats for {@code lakefs://}, as a setting of the scheme names it. */
public final class LakeCommitterFactory extends PathOutputCommitterFactory {
  @Override
  public PathOutputCommitter createOutputCommitter(Path output, TaskAttemptContext context) throws IOException {
    return new LakeOutputCommitter(output, context);
  }
}
