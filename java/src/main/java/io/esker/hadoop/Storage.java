package io.esker.hadoop;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.net.URI;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;

/**
 * Where a repository's bytes lie, and how this process gets at them: as files of this machine, through Hadoop's own
 * file system for the store, or by URLs that the server signs.
 *
 * <p>Reading a file that has the right name and size is right wherever the server is: nobody guesses an address. To
 * write, the server has to be on this machine as well.
 */
public final class Storage {
  static final String S3 = "s3://";
  private static final String S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem";

  /** Of one request to an S3. Larger objects go by the server, which sends them in parts. */
  static final long PUT_BYTES_MAX = 5L << 30;

  private static final Map<List<Object>, Storage> ALL = new ConcurrentHashMap<>();

  private final String namespace;

  /** Of a namespace that is a directory: that. */
  private final Optional<Path> directory;

  private final boolean isServerHere;

  private Storage(String namespace, boolean isServerHere) {
    this.namespace = namespace.replaceAll("/+$", "") + "/";
    this.directory = namespace.startsWith("file:") ? Optional.of(Path.of(URI.create(namespace))) : Optional.empty();
    this.isServerHere = isServerHere;
  }

  /** Of the process. The first time, it takes a call. */
  public static Storage of(LakeClient client, String repository) throws IOException {
    List<Object> name = List.of(client, repository);
    Storage known = ALL.get(name);
    if (known == null) {
      JsonNode found = client.get("repositories", repository).send();
      known = new Storage(found.path("storage_namespace").asText(), isHere(client.endpoint()));
      ALL.put(name, known);
    }
    return known;
  }

  /** Whether blobs are written as files of this machine. */
  public boolean isLocal() {
    return isServerHere && directory.isPresent() && Files.isWritable(directory.get());
  }

  /** Whether bytes that are sent to the server end where it keeps them itself: no other way is shorter. */
  boolean isOfServer() {
    return namespace.startsWith("file:") || namespace.startsWith("memory:");
  }

  /** The file that a {@code file:} address names. */
  public Path file(String address) throws FileNotFoundException {
    try {
      if (directory.isPresent() && address.startsWith(namespace)) {
        return directory.get().resolve(address.substring(namespace.length()));
      }
      return Path.of(address.substring("file://".length()));
    } catch (InvalidPathException error) {
      throw new FileNotFoundException("no file can be at " + address);
    }
  }

  /** The blob's file, open, if it is on this machine. */
  Optional<FileChannel> openFile(String address, long size) throws IOException {
    if (!address.startsWith("file://")) {
      return Optional.empty();
    }
    try {
      FileChannel channel = FileChannel.open(file(address), StandardOpenOption.READ);
      if (channel.size() == size) {
        return Optional.of(channel);
      }
      channel.close();
    } catch (NoSuchFileException | FileNotFoundException | java.nio.file.AccessDeniedException error) {
      // The server is on another machine, or is another user.
    }
    return Optional.empty();
  }

  /** Whether Hadoop has a file system of its own for the store that blobs are written to. */
  boolean isInHadoop(Configuration conf) {
    return isInHadoop(conf, namespace);
  }

  /** Whether Hadoop has a file system of its own for the store of this blob. */
  static boolean isInHadoop(Configuration conf, String address) {
    return address.startsWith(S3) && conf.getClassByNameOrNull(conf.get("fs.s3a.impl", S3A)) != null;
  }

  /** The same blob, as that file system names it. */
  static org.apache.hadoop.fs.Path inHadoop(String address) {
    int end = address.indexOf('/', S3.length());
    return new org.apache.hadoop.fs.Path("s3a", address.substring(S3.length(), end), address.substring(end));
  }

  private static boolean isHere(String endpoint) {
    try {
      InetAddress address = InetAddress.getByName(URI.create(endpoint).getHost());
      return address.isLoopbackAddress() || NetworkInterface.getByInetAddress(address) != null;
    } catch (IOException error) {
      return false;
    }
  }
}
