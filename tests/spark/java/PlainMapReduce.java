import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;

/** A job of Hadoop's own, in a process that has never heard of Spark: copies a file's lines, by two reducers. */
public final class PlainMapReduce {
  public static void main(String[] arguments) throws Exception {
    Configuration conf = new Configuration();
    conf.set("fs.lakefs.endpoint", arguments[0]);
    conf.set("fs.lakefs.access.key", arguments[1]);
    conf.set("fs.lakefs.secret.key", arguments[2]);
    conf.set("mapreduce.outputcommitter.factory.scheme.lakefs", "io.esker.spark.LakeCommitterFactory");
    conf.set("mapreduce.framework.name", "local");
    conf.set("hadoop.tmp.dir", arguments[3]);
    Job job = Job.getInstance(conf, "copy");
    job.setNumReduceTasks(2);
    job.setOutputKeyClass(LongWritable.class);
    job.setOutputValueClass(Text.class);
    FileInputFormat.addInputPath(job, new Path(arguments[4]));
    FileOutputFormat.setOutputPath(job, new Path(arguments[5]));
    System.exit(job.waitForCompletion(true) ? 0 : 1);
  }
}
