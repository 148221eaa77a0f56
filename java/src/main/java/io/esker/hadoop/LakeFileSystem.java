package io.esker.hadoop;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.impl.AbstractFSBuilderImpl;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * {@code lakefs://repository/ref/path}: what any branch, tag or commit shows, and on branches, what is staged.
 *
 * <p>Objects have no directories. One is there if something is in it, or if it was made, of which an empty object
 * tells whose key ends in '/', and which no listing shows. A directory that nobody made goes with the last file in it.
 * Deleting and renaming directories is one change of the branch, however much is in them.
 */
public final class LakeFileSystem extends FileSystem {
  static final String SCHEME = "lakefs";

  private static final String DELIMITER = "/";

  private URI uri;
  private String repository;
  private LakeClient client;
  private Entries entries;
  private Blobs blobs;
  private Path workingDirectory;

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setConf(conf);
    repository = name.getAuthority();
    if (repository == null || !name.getScheme().equals(SCHEME)) {
      throw new IOException("'" + name + "' names no repository: write lakefs://repository/branch/path");
    }
    uri = URI.create(SCHEME + "://" + repository);
    client = LakeClient.of(conf);
    entries = Entries.of(client, repository);
    blobs = new Blobs(client, repository, entries, conf);
    workingDirectory = new Path(uri.toString(), "/");
  }

  @Override
  public String getScheme() {
    return SCHEME;
  }

  @Override
  public URI getUri() {
    return uri;
  }

  /** There are no tokens to be had; and a repository is no host, to look for its address. */
  @Override
  public String getCanonicalServiceName() {
    return null;
  }

  @Override
  public Path getWorkingDirectory() {
    return workingDirectory;
  }

  @Override
  public void setWorkingDirectory(Path directory) {
    workingDirectory = fixRelativePart(directory);
  }

  @Override
  @Deprecated
  public long getDefaultBlockSize() {
    return LakeFileStatus.BLOCK_BYTES;
  }

  // reading

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    Path at = makeQualified(path);
    return said(() -> status(at));
  }

  /** Of a repository or a ref that is not there, the server's words are raised: else a typo looks like an empty place. */
  @Override
  public boolean exists(Path path) throws IOException {
    try {
      getFileStatus(path);
      return true;
    } catch (FileNotFoundException error) {
      if (error.getCause() instanceof LakeException) {
        throw error;
      }
      return false;
    }
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    Path at = makeQualified(path);
    return said(() -> open(at, Optional.empty()));
  }

  @Override
  protected CompletableFuture<FSDataInputStream> openFileWithOptions(Path path, OpenFileParameters parameters)
      throws IOException {
    AbstractFSBuilderImpl.rejectUnknownMandatoryKeys(
        parameters.getMandatoryKeys(), Options.OpenFileOptions.FS_OPTION_OPENFILE_STANDARD_OPTIONS, "for " + path);
    Path at = makeQualified(path);
    Optional<Entry> known = known(at, parameters.getStatus());
    CompletableFuture<FSDataInputStream> opened = new CompletableFuture<>();
    try {
      opened.complete(said(() -> open(at, known)));
    } catch (IOException | RuntimeException error) {
      opened.completeExceptionally(error);
    }
    return opened;
  }

  /** The entry that a status was made of, here or by another process, if it is at hand. */
  private Optional<Entry> known(Path at, FileStatus status) {
    if (status == null || !status.getPath().equals(at)) {
      return Optional.empty();
    }
    if (status instanceof LakeFileStatus ours && ours.entry() != null) {
      return Optional.of(ours.entry());
    }
    LakePath path = LakePath.of(at);
    return entries.seen(path.ref(), path.key(), status.getLen(), status.getModificationTime());
  }

  private FSDataInputStream open(Path at, Optional<Entry> known) throws IOException {
    LakePath path = LakePath.of(at);
    Entry entry;
    if (known.isPresent()) {
      entry = known.get();
    } else {
      Entries.Found found = find(path);
      if (found.file().isEmpty()) {
        throw new FileNotFoundException(found.isDirectory() ? path + " is a directory" : path + " is not there");
      }
      entry = found.file().get();
    }
    return blobs.open(path.ref(), entry, at, statistics);
  }

  private FileStatus status(Path at) throws IOException {
    LakePath path = LakePath.of(at);
    if (ReplacedTable.hides(at)) {
      throw new FileNotFoundException(path + " is being replaced");
    }
    Entries.Found found = find(path);
    if (found.file().isPresent()) {
      return LakeFileStatus.of(at, found.file().get());
    }
    if (!found.isDirectory()) {
      throw new FileNotFoundException(path + " is not there");
    }
    return LakeFileStatus.directory(at);
  }

  private Entries.Found find(LakePath path) throws IOException {
    if (path.ref().isEmpty()) {
      Storage.of(client, repository);
      return new Entries.Found(Optional.empty(), true);
    }
    return entries.find(path.ref(), path.key());
  }

  // listing

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    List<FileStatus> all = new ArrayList<>();
    for (RemoteIterator<FileStatus> each = listStatusIterator(path); each.hasNext(); ) {
      all.add(each.next());
    }
    return all.toArray(new FileStatus[0]);
  }

  @Override
  public RemoteIterator<FileStatus> listStatusIterator(Path path) throws IOException {
    Path at = makeQualified(path);
    LakePath directory = LakePath.of(at);
    if (directory.ref().isEmpty()) {
      return new Branches(at);
    }
    return new Listing<>(directory, DELIMITER) {
      @Override
      FileStatus item(FileStatus status) {
        return status;
      }
    };
  }

  @Override
  public RemoteIterator<LocatedFileStatus> listLocatedStatus(Path path) throws IOException {
    LakePath directory = LakePath.of(makeQualified(path));
    return new Listing<>(directory, DELIMITER) {
      @Override
      LocatedFileStatus item(FileStatus status) throws IOException {
        return status instanceof LakeFileStatus file ? file : new LocatedFileStatus(status, null);
      }
    };
  }

  @Override
  public RemoteIterator<LocatedFileStatus> listFiles(Path path, boolean recursive) throws IOException {
    if (!recursive) {
      return super.listFiles(path, false);
    }
    LakePath directory = LakePath.of(makeQualified(path));
    return new Listing<>(directory, "") {
      @Override
      LocatedFileStatus item(FileStatus status) {
        return (LakeFileStatus) status;
      }
    };
  }

  /** What is in a directory, or the file that is there instead, read page by page. */
  private abstract class Listing<T> implements RemoteIterator<T> {
    private final LakePath directory;
    private final String delimiter;
    private final Deque<FileStatus> ready = new ArrayDeque<>();
    private String after = "";

    Listing(LakePath directory, String delimiter) throws IOException {
      if (directory.ref().isEmpty()) {
        throw new FileNotFoundException(directory + " has branches, and no files: name one");
      }
      this.directory = directory;
      this.delimiter = delimiter;
      said(
          () -> {
            if (!read() && !directory.key().isEmpty()) {
              readFile();
            }
            return null;
          });
    }

    abstract T item(FileStatus status) throws IOException;

    @Override
    public boolean hasNext() throws IOException {
      while (ready.isEmpty() && after != null) {
        said(this::read);
      }
      return !ready.isEmpty();
    }

    @Override
    public T next() throws IOException {
      hasNext();
      return item(ready.remove());
    }

    /** The next page; whether anything is on it. */
    private boolean read() throws IOException {
      Page page = entries.page(directory.ref(), directory.inside(), after, delimiter, Entries.PAGE_MAX);
      for (Entry entry : page.objects()) {
        if (LakePath.canName(entry.key())) {
          ready.add(LakeFileStatus.of(directory.at(entry.key()), entry));
        }
      }
      for (String prefix : page.prefixes()) {
        String key = prefix.substring(0, prefix.length() - 1);
        if (LakePath.canName(key)) {
          ready.add(LakeFileStatus.directory(directory.at(key)));
        }
      }
      after = page.next();
      return !page.objects().isEmpty() || !page.prefixes().isEmpty();
    }

    private void readFile() throws IOException {
      Optional<Entry> file = entries.find(directory.ref(), directory.key()).file();
      if (file.isEmpty()) {
        throw new FileNotFoundException(directory + " is not there");
      }
      ready.add(LakeFileStatus.of(directory.at(directory.key()), file.get()));
    }
  }

  /** The branches of the repository, as the directories in its root. */
  private final class Branches implements RemoteIterator<FileStatus> {
    private final Path root;
    private final Deque<String> ready = new ArrayDeque<>();
    private String after = "";

    Branches(Path root) throws IOException {
      this.root = root;
      read();
    }

    @Override
    public boolean hasNext() throws IOException {
      while (ready.isEmpty() && after != null) {
        read();
      }
      return !ready.isEmpty();
    }

    @Override
    public FileStatus next() throws IOException {
      hasNext();
      return LakeFileStatus.directory(new Path(root, ready.remove()));
    }

    private void read() throws IOException {
      JsonNode answer =
          said(
              () ->
                  client
                      .get("repositories", repository, "branches")
                      .query("after", after)
                      .query("amount", Entries.PAGE_MAX)
                      .send());
      answer.path("results").forEach(branch -> ready.add(branch.path("id").asText()));
      JsonNode pagination = answer.path("pagination");
      after = pagination.path("has_more").asBoolean() ? pagination.path("next_offset").asText() : null;
    }
  }

  // writing

  @Override
  public FSDataOutputStream create(
      Path path,
      FsPermission permission,
      boolean overwrite,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    Path at = makeQualified(path);
    LakePath file = LakePath.of(at).forObject();
    return said(
        () -> {
          Entries.Found found = find(file);
          if (found.isDirectory() && found.file().isEmpty()) {
            throw new FileAlreadyExistsException(file + " is a directory");
          }
          if (found.file().isPresent() && !overwrite) {
            throw new FileAlreadyExistsException(file + " is there already");
          }
          return new FSDataOutputStream(blobs.create(file.ref(), file.key(), at, !overwrite), statistics);
        });
  }

  @Override
  public FSDataOutputStream createNonRecursive(
      Path path,
      FsPermission permission,
      EnumSet<CreateFlag> flags,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    Path parent = makeQualified(path).getParent();
    if (parent == null || !getFileStatus(parent).isDirectory()) {
      throw new ParentNotDirectoryException(parent + " is no directory");
    }
    return create(
        path, permission, flags.contains(CreateFlag.OVERWRITE), bufferSize, replication, blockSize, progress);
  }

  @Override
  public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) {
    throw new UnsupportedOperationException("objects of a lake never change: write " + path + " anew");
  }

  @Override
  public boolean mkdirs(Path path, FsPermission permission) throws IOException {
    LakePath directory = LakePath.of(makeQualified(path));
    return said(
        () -> {
          Entries.Found found = find(directory);
          if (found.file().isPresent()) {
            throw new FileAlreadyExistsException(directory + " is a file");
          }
          if (!found.isDirectory()) {
            checkNotBelowFile(directory);
            blobs.touch(directory.ref(), directory.inside());
          }
          return true;
        });
  }

  private void checkNotBelowFile(LakePath path) throws IOException {
    String key = path.key();
    for (int end = key.lastIndexOf('/'); end > 0; end = key.lastIndexOf('/', end - 1)) {
      Entries.Found found = entries.find(path.ref(), key.substring(0, end));
      if (found.file().isPresent()) {
        throw new ParentNotDirectoryException(path.at(key.substring(0, end)) + " is a file");
      }
      if (found.isDirectory()) {
        return;
      }
    }
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    if (recursive && ReplacedTable.defers(makeQualified(path))) {
      return true;
    }
    LakePath what = LakePath.of(makeQualified(path));
    if (what.ref().isEmpty()) {
      return false; // a repository, with all its history, is not deleted by way of a file system
    }
    return said(
        () -> {
          Entries.Found found = find(what);
          if (found.file().isPresent()) {
            deleteObject(what.ref(), what.key());
          } else if (found.isDirectory()) {
            if (!recursive && !isEmpty(what)) {
              throw new PathIsNotEmptyDirectoryException(what.toString());
            }
            deleteInside(what);
          }
          return !found.isNothing();
        });
  }

  private void deleteObject(String branch, String key) throws IOException {
    try {
      client
          .delete("repositories", repository, "branches", branch, "objects")
          .query("path", key)
          .idempotent()
          .send();
    } finally {
      entries.changed(branch, key);
    }
  }

  private void deleteInside(LakePath directory) throws IOException {
    try {
      if (DroppedTable.isDropping() && DroppedTable.commit(client, directory)) {
        return;
      }
      client
          .post("repositories", repository, "branches", directory.ref(), "objects", "delete_prefix")
          .query("prefix", directory.inside())
          .idempotent()
          .send();
    } finally {
      entries.changed(directory.ref());
    }
  }

  private boolean isEmpty(LakePath directory) throws IOException {
    Page page = entries.page(directory.ref(), directory.inside(), "", "", 2);
    return page.objects().stream().allMatch(entry -> entry.key().equals(directory.inside()));
  }

  @Override
  public BulkDelete createBulkDelete(Path path) {
    return new LakeBulkDelete(client, entries, makeQualified(path));
  }

  // renaming

  /** Moves what is at {@code source}, whole and at once: into {@code target} if that is a directory. */
  @Override
  public boolean rename(Path source, Path target) throws IOException {
    LakePath from = LakePath.of(makeQualified(source));
    Path to = makeQualified(target);
    return said(
        () -> {
          Entries.Found moved = find(from);
          if (moved.isNothing() || from.key().isEmpty()) {
            return false;
          }
          Path end = to;
          Entries.Found there = find(LakePath.of(to));
          if (there.file().isEmpty() && there.isDirectory()) {
            end = new Path(to, source.getName());
            there = find(LakePath.of(end));
          }
          LakePath into = LakePath.of(end);
          if (into.equals(from)) {
            return moved.file().isPresent();
          }
          if (!there.isNothing() || into.key().startsWith(from.inside()) || into.key().isEmpty()) {
            return false;
          }
          try {
            move(from, into, false);
            return true;
          } catch (LakeException error) {
            if (error.kind().equals("object-not-found") || error.kind().equals("object-exists")) {
              return false; // somebody was faster; or a directory above the target is a file
            }
            throw error;
          }
        });
  }

  @Override
  @Deprecated
  protected void rename(Path source, Path target, Options.Rename... options) throws IOException {
    LakePath from = LakePath.of(makeQualified(source));
    LakePath into = LakePath.of(makeQualified(target));
    boolean overwrite = Stream.of(options).anyMatch(Options.Rename.OVERWRITE::equals);
    said(
        () -> {
          Entries.Found moved = find(from);
          if (moved.isNothing()) {
            throw new FileNotFoundException(from + " is not there");
          }
          Entries.Found there = find(into);
          if (!there.isNothing() && moved.file().isPresent() != there.file().isPresent()) {
            throw new IOException(from + " and " + into + " are not both files, or both directories");
          }
          move(from, into, overwrite);
          return null;
        });
  }

  private void move(LakePath from, LakePath into, boolean overwrite) throws IOException {
    if (!from.ref().equals(into.ref())) {
      throw new IOException("cannot rename " + from + " to " + into + ": they are not on one branch; copy it instead");
    }
    try {
      client
          .post("repositories", repository, "branches", from.ref(), "objects", "rename")
          .body(new Rename(from.key(), into.key(), overwrite))
          .send();
    } finally {
      entries.changed(from.ref());
    }
  }

  private record Rename(String source, String target, boolean overwrite) {}

  // the rest

  @Override
  public boolean hasPathCapability(Path path, String capability) throws IOException {
    return switch (capability.toLowerCase(Locale.ROOT)) {
      case CommonPathCapabilities.ETAGS_AVAILABLE,
              CommonPathCapabilities.ETAGS_PRESERVED_IN_RENAME,
              CommonPathCapabilities.ABORTABLE_STREAM,
              CommonPathCapabilities.BULK_DELETE,
              CommonPathCapabilities.VIRTUAL_BLOCK_LOCATIONS ->
          true;
      default -> super.hasPathCapability(path, capability);
    };
  }

  private interface Asking<T> {
    T ask() throws IOException;
  }

  /** What comes of asking the server, its refusals in Hadoop's words. */
  private static <T> T said(Asking<T> asking) throws IOException {
    try {
      return asking.ask();
    } catch (LakeException error) {
      throw error.asHadoop();
    }
  }
}
