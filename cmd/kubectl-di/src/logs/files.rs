use std::{
    collections::HashSet,
    fs::{File, OpenOptions, create_dir_all},
    io::Write,
    path::PathBuf,
};

use anyhow::{Context, Result};
use di_client::LogLine;

/// A file for each container, in a folder for each pod. One is open at a time, for a job may have more containers than a process may
/// have files.
pub struct Files {
    folder: PathBuf,
    /// Those that were begun.
    begun: HashSet<PathBuf>,
    open: Option<(PathBuf, File)>,
}

impl Files {
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            begun: HashSet::new(),
            open: None,
        }
    }

    /// Tells of each file when it is begun; what an earlier call has left there is replaced.
    pub fn take(&mut self, out: &mut impl Write, line: &LogLine) -> Result<()> {
        let folder = self.folder.join(&line.pod);
        let path = folder.join(format!("{}.log", line.container));
        let mut file = match self.open.take() {
            Some((open, file)) if open == path => file,
            _ => {
                let new = !self.begun.contains(&path);
                let opened = create_dir_all(&folder).and_then(|()| {
                    let mut options = OpenOptions::new();
                    options.create(true).write(true).truncate(new).append(!new);
                    options.open(&path)
                });
                let file = opened.with_context(|| format!("cannot write {}", path.display()))?;
                if new {
                    self.begun.insert(path.clone());
                    writeln!(out, "{}", path.display())?;
                    out.flush()?;
                }
                file
            }
        };
        let written = file.write_all(&line.bytes);
        written.with_context(|| format!("cannot write {}", path.display()))?;
        self.open = Some((path, file));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_container_has_its_file_and_nothing_of_an_earlier_call() {
        let folder = tempfile::tempdir().unwrap();
        let line = |pod: &str, bytes: &[u8]| LogLine {
            pod: pod.to_owned(),
            container: "c".to_owned(),
            bytes: bytes.to_vec(),
        };
        for _ in 0..2 {
            let mut files = Files::new(folder.path().join("logs"));
            let mut out = Vec::new();
            for line in [line("a", b"1\n"), line("b", b"2"), line("a", b"3\n")] {
                files.take(&mut out, &line).unwrap();
            }
            let out = String::from_utf8(out).unwrap();
            let names: Vec<_> = out.lines().map(|path| &path[path.len() - 12..]).collect();
            assert_eq!(names, ["logs/a/c.log", "logs/b/c.log"]);
            let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
            assert_eq!(read("logs/a/c.log"), b"1\n3\n");
            assert_eq!(read("logs/b/c.log"), b"2");
        }
        std::fs::write(folder.path().join("full"), "").unwrap();
        let mut files = Files::new(folder.path().join("full"));
        let error = files.take(&mut Vec::new(), &line("a", b"")).unwrap_err();
        assert!(error.to_string().contains("cannot write"), "{error:#}");
    }
}
