package io.esker.spark;

import io.esker.hadoop.BlobWriter;
import io.esker.hadoop.JobBlobs;
import io.esker.hadoop.LakeOutput;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.nio.file.Files;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * One attempt of a task, and the files that it writes: straight to blobs of the job, under names that no other attempt
 * has. So whatever an attempt that failed, lost, or came too late has written is in nobody's way.
 */
final class Attempt {
  /** Of this process: the writers of file formats know nothing but a path, by which their files are found again. */
  private static final Map<String, Attempt> RUNNING = new ConcurrentHashMap<>();

  private final LakeJob job;
  private final Configuration conf;

  /** What the paths of files begin with that were not announced. */
  private final String prefix;

  private final String id;

  private final Uploads uploads;

  private final java.nio.file.Path directory;

  /** By what comes behind the attempt's own directory in the path that they are written to. */
  private final Map<String, File> files = new LinkedHashMap<>();

  /** Files, the forgotten ones too: no two have the same number. */
  private int begun;

  private final Manifest manifest = new Manifest();

  private Attempt(String id, LakeJob job, String prefix, Configuration conf) {
    this.id = id;
    this.job = job;
    this.conf = conf;
    this.prefix = prefix;
    // Not its id: an attempt that runs again on another machine may have the same.
    this.uploads = new Uploads(job, UUID.randomUUID().toString(), conf);
    this.directory = JobBlobs.goByServer(conf) ? null : reachable(job);
  }

  /** Files that are not announced come below {@code prefix}. An attempt of the same id that ran here before is over. */
  static Attempt begin(String id, LakeJob job, String prefix, Configuration conf) throws IOException {
    JobFileSystem.announce(conf);
    Attempt attempt = new Attempt(id, job, prefix, conf);
    RUNNING.put(id, attempt);
    return attempt;
  }

  /** Where Hadoop's writers are told to write. */
  static Path work(String id) {
    return new Path(JobFileSystem.SCHEME + ":/" + id);
  }

  /** The attempt that a path is of. */
  static Attempt of(Path path) throws FileNotFoundException {
    String[] parts = path.toUri().getPath().split("/", 3);
    Attempt found = parts.length > 1 ? RUNNING.get(parts[1]) : null;
    if (found == null) {
      throw new FileNotFoundException(path + ": the attempt that wrote it is over");
    }
    return found;
  }

  Path work() {
    return work(id);
  }

  /** Where to write the file that is to appear at {@code path}. */
  synchronized String newFile(String path) {
    // The end of the name tells writers how to compress, and there may be others of that name in other directories.
    String name = begun + "/" + path.substring(path.lastIndexOf('/') + 1);
    files.put(name, new File(path));
    return new Path(work(), name).toString();
  }

  /** All below this directory is replaced, if the job replaces what it writes to. */
  synchronized void replaces(String directory) {
    manifest.directories.add(directory);
  }

  synchronized OutputStream create(Path path) throws IOException {
    String name = below(path);
    File file = files.get(name);
    if (file == null) {
      file = new File(prefix + name);
      files.put(name, file);
    }
    file.open();
    return new LakeOutput(file, file.path);
  }

  /** The size of a file that was written. */
  synchronized long size(Path path) throws FileNotFoundException {
    File file = files.get(below(path));
    if (file == null || file.size < 0) {
      throw new FileNotFoundException(path + " was not written");
    }
    return file.size;
  }

  /** Whether it was there. */
  synchronized boolean forget(Path path) {
    return files.remove(below(path)) != null;
  }

  /** What was written. The attempt is over. */
  synchronized Manifest commit() throws IOException {
    RUNNING.remove(id, this);
    for (File file : files.values()) {
      if (file.isOpen()) {
        throw new IOException(file.path + " was not closed");
      }
      if (file.size >= 0) { // some writers begin a file with its first row
        manifest.entries.add(
            new Manifest.Entry(file.path, job.data + file.blob, file.size, file.md5, file.mtimeMs));
      }
    }
    return manifest;
  }

  /** The attempt is over. What it wrote is in no manifest, and garbage. */
  static void end(String id) {
    RUNNING.remove(id);
  }

  void abort() {
    RUNNING.remove(id, this);
  }

  private String below(Path path) {
    String[] parts = path.toUri().getPath().split("/", 3);
    return parts.length < 3 ? "" : parts[2];
  }

  /**
   * The directory of the job's blobs, if the store is one of files that this machine has: it shows the blob that was
   * uploaded when the job started.
   */
  private static java.nio.file.Path reachable(LakeJob job) {
    URI uri = URI.create(job.physicalPrefix);
    if (!"file".equals(uri.getScheme())) {
      return null;
    }
    java.nio.file.Path directory = java.nio.file.Path.of(uri.getPath());
    return Files.exists(directory.resolve(LakeJob.PROBE)) && Files.isWritable(directory) ? directory : null;
  }

  /** A file that is written, or has been. */
  private final class File implements BlobWriter {
    private final String path;
    private final int number;
    private final String blob;
    private BlobWriter writer;
    private long size = -1;
    private String md5;
    private long mtimeMs;

    File(String path) {
      this.path = path;
      this.number = begun++;
      this.blob = uploads.name(number);
    }

    void open() throws IOException {
      if (writer != null || size >= 0) {
        throw new IOException(path + " is written once");
      }
      if (directory != null) {
        writer = new DirectWriter(directory.resolve(blob));
      } else {
        Optional<BlobWriter> inHadoop = JobBlobs.inHadoop(job.physicalPrefix + blob, conf);
        writer = inHadoop.isPresent() ? inHadoop.get() : new UploadWriter(uploads, number);
      }
    }

    boolean isOpen() {
      return writer != null;
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
      writer.write(bytes, offset, length);
    }

    @Override
    public void finish(long written, String digest) throws IOException {
      writer.finish(written, digest);
      synchronized (Attempt.this) {
        writer = null;
        mtimeMs = System.currentTimeMillis();
        md5 = digest;
        size = written;
      }
    }

    @Override
    public void discard() {
      writer.discard();
      synchronized (Attempt.this) {
        writer = null;
      }
    }
  }
}
