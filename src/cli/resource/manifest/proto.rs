//! Protos that a manifest names or holds, compiled here: registering a type needs no compiler.

use std::path::Path;

use bytes::Bytes;
use prost::Message;
use prost_types::FileDescriptorSet;
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};

use super::node::{Location, Problem, YamlNode};

/// Compiles a `.proto` file to an encoded `FileDescriptorSet`. `name` is the file's path, relative
/// to `folder`, or to the working directory without one. Imports are searched in the folder of the
/// `.proto` file; those of `google/protobuf/` are always found.
pub(super) fn compile_file(folder: Option<&Path>, name: &YamlNode) -> Result<Bytes, Problem> {
    let path = Path::new(name.text()?);
    let path = folder.map_or_else(|| path.to_owned(), |folder| folder.join(path));
    let wrong = |text: String| Problem::at(name.location, text);
    let Some(file) = path.file_name().and_then(|file| file.to_str()) else {
        return Err(wrong(format!("{} is not the name of a file", path.display())));
    };
    if !path.is_file() {
        return Err(wrong(format!("there is no file {}", path.display())));
    }
    let beside = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut resolver = ChainFileResolver::new();
    resolver.add(IncludeFileResolver::new(beside.to_owned()));
    compile(resolver, file).map_err(|error| wrong(format!("{error:?}")))
}

/// Compiles the protobuf text in a manifest to an encoded `FileDescriptorSet`. Imports are searched
/// in `folder`; without one, only those of `google/protobuf/` are found.
pub(super) fn compile_text(folder: Option<&Path>, text: &YamlNode) -> Result<Bytes, Problem> {
    const NAME: &str = "manifest.proto";
    let source = text.text()?;
    // The compiler counts lines from the first line of the text.
    let wrong = |error: protox::Error| {
        let said = format!("{error:?}");
        let inner = said.strip_prefix(NAME).and_then(|rest| {
            let mut parts = rest.strip_prefix(':')?.splitn(3, ':');
            let line: u64 = parts.next()?.parse().ok()?;
            let column = parts.next()?.parse().ok()?;
            let location = Location { line: text.location.line + line.checked_sub(1)?, column };
            Some(Problem::at(location, format!("proto: {}", parts.next()?.trim())))
        });
        inner.unwrap_or_else(|| Problem::at(text.location, format!("proto: {said}")))
    };
    let file = File::from_source(NAME, source).map_err(wrong)?;
    let mut resolver = ChainFileResolver::new();
    resolver.add(Given { name: NAME, file });
    if let Some(folder) = folder {
        resolver.add(IncludeFileResolver::new(folder.to_owned()));
    }
    compile(resolver, NAME).map_err(wrong)
}

/// One file that is not in any folder.
struct Given {
    name: &'static str,
    file: File,
}

impl FileResolver for Given {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        if name == self.name { Ok(self.file.clone()) } else { Err(protox::Error::file_not_found(name)) }
    }
}

/// The encoded `FileDescriptorSet` of a file and its imports, without `google/protobuf/`, which
/// every server knows.
fn compile(mut resolver: ChainFileResolver, name: &str) -> Result<Bytes, protox::Error> {
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).open_file(name)?;
    let mut set: FileDescriptorSet = compiler.file_descriptor_set();
    set.file.retain(|file| !file.name().starts_with("google/protobuf/"));
    Ok(set.encode_to_vec().into())
}
