package io.esker.spark;

import com.fasterxml.jackson.core.JsonGenerator;
import io.esker.hadoop.Entries;
import io.esker.hadoop.LakeClient;
import io.esker.hadoop.ReplacedTable;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** What a job is to do to its branch, all of it in one commit: collected by the driver, sent in one call. */
final class Publication {
  /** Settings of a write: options of a DataFrameWriter, or set for a session. */
  static final String MESSAGE = "esker.message";

  static final String FORCE = "esker.force";
  static final String METADATA = "esker.metadata.";

  private static final String FILES = "spark.files";
  private static final String BYTES = "spark.bytes";

  /** What metadata tells of the amount that was written, as far as it is known. */
  static final List<String> COUNTS = List.of(WritePlan.ROWS, FILES, BYTES);

  private static final String WANTS_SUCCESS_FILE = "mapreduce.fileoutputcommitter.marksuccessfuljobs";

  /** An empty file's. */
  private static final String MD5_OF_NOTHING = "d41d8cd98f00b204e9800998ecf8427e";

  private final Place target;
  private final List<Manifest.Entry> entries = new ArrayList<>();
  private final TreeSet<String> deletes = new TreeSet<>();
  private final TreeSet<String> removes = new TreeSet<>();
  private final TreeSet<String> expectEmpty = new TreeSet<>();
  private final Map<String, String> metadata = new LinkedHashMap<>();
  private boolean tasks;
  private String verb = "append to";

  Publication(Place target) {
    this.target = target;
  }

  /** Whatever is at the path, file or directory, goes. */
  void delete(Place place) {
    deletes.add(place.prefix());
    if (!place.path.isEmpty()) {
      removes.add(place.path);
    }
    verb = "overwrite";
  }

  /** Whatever has a path that begins so goes. */
  void deleteUnder(String prefix) {
    deletes.add(prefix);
    verb = "overwrite";
  }

  /** Nothing may be there when the job lands. */
  void expectEmpty(Place place) {
    expectEmpty.add(place.prefix());
    verb = "create";
  }

  void add(Manifest manifest) {
    entries.addAll(manifest.entries);
  }

  /** With what tasks have told the server. */
  void addTasks() {
    tasks = true;
  }

  void describe(Map<String, String> lineage) {
    metadata.putAll(lineage);
  }

  /** Publish it: the commit. */
  String send(LakeJob job, Configuration conf) throws IOException {
    if (!tasks) {
      metadata.put(FILES, Integer.toString(entries.size()));
      metadata.put(BYTES, Long.toString(entries.stream().mapToLong(entry -> entry.size).sum()));
    }
    Map<String, String> counted = Map.copyOf(metadata);
    if (conf.getBoolean(WANTS_SUCCESS_FILE, true)) {
      String success = target.prefix() + LakeJob.PROBE;
      entries.add(new Manifest.Entry(success, job.data + LakeJob.PROBE, 0, MD5_OF_NOTHING, System.currentTimeMillis()));
    }
    for (Map.Entry<String, String> setting : conf.getPropsWithPrefix(METADATA).entrySet()) {
      metadata.put(setting.getKey(), setting.getValue());
    }
    try {
      String commit = job.publish(conf, body(conf));
      ReplacedTable.written();
      Transaction.wrote(target, counted);
      return commit;
    } finally {
      Entries.of(LakeClient.of(conf), target.repo).changed(target.branch);
    }
  }

  private byte[] body(Configuration conf) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (JsonGenerator json = LakeClient.JSON.createGenerator(bytes)) {
      json.writeStartObject();
      json.writeObjectField("entries", entries);
      names(json, "deletes", deletes);
      names(json, "removes", removes);
      names(json, "expect_empty", expectEmpty);
      json.writeBooleanField("tasks", tasks);
      String who = metadata.containsKey("hadoop.job.id") ? "Hadoop" : "Spark";
      String what = verb + " " + target.name();
      json.writeStringField("message", conf.get(MESSAGE, who + ": " + what));
      json.writeObjectField("metadata", metadata);
      json.writeBooleanField("force", conf.getBoolean(FORCE, false));
      json.writeEndObject();
    }
    return bytes.toByteArray();
  }

  private static void names(JsonGenerator json, String field, Collection<String> names) throws IOException {
    json.writeArrayFieldStart(field);
    for (String name : names) {
      json.writeString(name);
    }
    json.writeEndArray();
  }

  /** A place of the same branch. An IOException that tells the way out if it is another's: one commit is of one branch. */
  Place here(Path path) throws IOException {
    if (Place.isLake(path.toString())) {
      Place place = Place.of(path);
      if (place.isOnBranchOf(target)) {
        return place;
      }
    }
    throw new IOException(
        path + " is not on the branch of " + target + ", so one commit cannot change both: write to it by itself");
  }
}
