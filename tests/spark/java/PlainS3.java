import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/** As much of a Hadoop file system for S3 as reading and writing blobs takes, for a store that trusts everybody. */
public final class PlainS3 extends FileSystem {
  /** The store looks whether a request is signed, and not by whom. */
  private static final String ANYBODY =
      "AWS4-HMAC-SHA256 Credential=any/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=any";

  private final HttpClient http = HttpClient.newHttpClient();
  private URI uri;

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setConf(conf);
    uri = URI.create("s3a://" + name.getAuthority());
  }

  @Override
  public String getScheme() {
    return "s3a";
  }

  @Override
  public URI getUri() {
    return uri;
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    byte[] all = send(HttpRequest.newBuilder(at(path)));
    return new FSDataInputStream(new InMemory(all));
  }

  @Override
  public FSDataOutputStream create(
      Path path, FsPermission p, boolean overwrite, int buffer, short replicas, long block, Progressable told)
      throws IOException {
    ByteArrayOutputStream out =
        new ByteArrayOutputStream() {
          @Override
          public void close() throws IOException {
            send(HttpRequest.newBuilder(at(path)).PUT(BodyPublishers.ofByteArray(toByteArray())));
          }
        };
    return new FSDataOutputStream(out, statistics);
  }

  private URI at(Path path) {
    URI uri = path.toUri();
    return URI.create(getConf().get("plain.s3.endpoint") + "/" + uri.getAuthority() + uri.getRawPath());
  }

  private byte[] send(HttpRequest.Builder request) throws IOException {
    try {
      HttpRequest signed = request.header("Authorization", ANYBODY).build();
      HttpResponse<byte[]> answer = http.send(signed, BodyHandlers.ofByteArray());
      if (answer.statusCode() >= 300) {
        throw new IOException(answer.uri() + ": " + answer.statusCode());
      }
      return answer.body();
    } catch (InterruptedException error) {
      throw new IOException(error);
    }
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    send(HttpRequest.newBuilder(at(path)).DELETE());
    return true;
  }

  @Override
  public FSDataOutputStream append(Path path, int buffer, Progressable told) {
    throw new UnsupportedOperationException();
  }

  @Override
  public boolean rename(Path source, Path target) {
    throw new UnsupportedOperationException();
  }

  @Override
  public FileStatus[] listStatus(Path path) {
    throw new UnsupportedOperationException();
  }

  @Override
  public void setWorkingDirectory(Path path) {}

  @Override
  public Path getWorkingDirectory() {
    return new Path("/");
  }

  @Override
  public boolean mkdirs(Path path, FsPermission permission) {
    throw new UnsupportedOperationException();
  }

  @Override
  public FileStatus getFileStatus(Path path) {
    throw new UnsupportedOperationException();
  }

  private static final class InMemory extends FSInputStream {
    private final byte[] all;
    private ByteArrayInputStream rest;

    InMemory(byte[] all) {
      this.all = all;
      this.rest = new ByteArrayInputStream(all);
    }

    @Override
    public void seek(long position) {
      rest = new ByteArrayInputStream(all);
      rest.skip(position);
    }

    @Override
    public long getPos() {
      return all.length - rest.available();
    }

    @Override
    public boolean seekToNewSource(long position) {
      return false;
    }

    @Override
    public int read() {
      return rest.read();
    }

    @Override
    public int read(byte[] into, int offset, int length) {
      return rest.read(into, offset, length);
    }
  }
}
