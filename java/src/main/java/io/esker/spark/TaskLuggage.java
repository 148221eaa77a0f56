package io.esker.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapred.JobConf;

/**
 * What each task of a write is sent, and has to decode: the job's configuration, once for the writer and once more for
 * who counts its files. Two thirds of it are defaults of YARN and MapReduce; to decode them is most of a small task.
 */
public final class TaskLuggage {
  private static final Set<String> DEFAULTS_OF_OTHERS = Set.of("mapred-default.xml", "yarn-default.xml");

  private TaskLuggage() {}

  /** Leave out what nobody set, and nobody asks for who writes or reads files. */
  public static void lighten(Configuration conf) {
    new JobConf(false); // the first one of a process adds them to all configurations that there are
    List<String> defaults = new ArrayList<>();
    for (Map.Entry<String, String> setting : conf) {
      String[] sources = conf.getPropertySources(setting.getKey());
      if (sources != null && DEFAULTS_OF_OTHERS.contains(sources[sources.length - 1])) {
        defaults.add(setting.getKey());
      }
    }
    defaults.forEach(conf::unset);
  }
}
