use super::*;

#[test]
fn files_are_written_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::open(&folder.path().join("made/here")).unwrap();
    let run = storage.root().join("a/b");
    storage.create_folder(&run).unwrap();
    let file = run.join("model-1.safetensors");
    storage.write(&file, b"one").unwrap();
    storage.write(&file, b"three").unwrap();
    assert_eq!(storage.read(&file).unwrap(), b"three");
    assert_eq!(
        storage.list_entries(&run).unwrap(),
        [&*file],
        "temporary files"
    );
    let last = run.join("model-final.safetensors");
    storage.rename(&file, &last).unwrap();
    assert_eq!(storage.list_entries(&run).unwrap(), [&*last]);
    storage.remove(&file).unwrap();
    storage.remove_folder(&run).unwrap();
    storage.remove_folder(&run).unwrap();
    assert!(storage.list_entries(&run).is_err() && storage.read(&last).is_err());
    let late = storage.write(&file, b"late");
    assert!(
        matches!(late, Err(Error::File { .. })),
        "the folder is gone"
    );
}

#[test]
fn unwritable_folder_error_gives_advice() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = Storage::open(&file.join("storage")).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    let message = error.to_string();
    assert!(
        message.contains("file/storage")
            && message.contains("spec.volumes")
            && message.contains("--storage")
    );
}
