package io.esker.hadoop;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;

/** The same for FileContext, which streaming queries keep their checkpoints with: a file replaces another at once. */
public final class LakeFs extends DelegateToFileSystem {
  private final LakeFileSystem files;

  public LakeFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    this(new LakeFileSystem(), uri, conf);
  }

  private LakeFs(LakeFileSystem files, URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(uri, files, conf, LakeFileSystem.SCHEME, false);
    this.files = files;
  }

  @Override
  @SuppressWarnings("deprecation") // there is no other name for it
  public void renameInternal(Path source, Path target, boolean overwrite) throws IOException {
    files.rename(source, target, overwrite ? Options.Rename.OVERWRITE : Options.Rename.NONE);
  }
}
