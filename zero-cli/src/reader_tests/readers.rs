//! Readers: each by the call that a command makes. The messages of ranks are tested beside them, in `zero-ranks`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize};
use serde_json::{Value, json};
use zero_files::checkpoint::{Checkpoint, CheckpointError, MANIFEST};
use zero_files::data::{Dataset, Draw, Text, TokenFileWriter, Tokenizer};
use zero_files::testing::SampleCheckpoint;
use zero_files::weights::{Folder, WeightType, WeightsError};
use zero_plan::spec::decode;
use zero_plan::{Config, Mesh, PlanBuf, Unit};
use zero_study::import::{ImportOptions, import};

use super::Reader;
use crate::error::CommandError;
use crate::launch::{Reach, hosts};
use crate::tokenize::{DocumentsReader, PassedRecords, TokenizeArguments};
use crate::{checkpoint, hardware, program, view};

#[path = "../../../zero-runtime/files/src/data/tiny_tokenizer.rs"]
#[expect(dead_code, reason = "its other tests know its length")]
mod tiny_tokenizer;

fn told(error: CommandError) -> String {
    error.to_string()
}

/// The files in a folder of the repository.
fn repository(folder: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.filter(|path| path.is_file()).map(|path| fs::read(path).expect("a file")).collect()
}

#[test]
fn specs() {
    let read = |path: &Path| program::read(path).map(|spec| drop(spec.to_string())).map_err(told);
    Reader::new("spec", "a.ron", repository("specs")).test(read);
}

#[test]
fn of_many_mistakes_the_first_are_told() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers/spec/many-mistakes.ron");
    let error = told(program::read(&path).expect_err("mistakes"));
    assert_eq!(error.matches("error[Z0").count(), 50, "{error}");
    assert!(error.ends_with(&format!("more mistakes in {}", path.display())), "{error}");
}

#[test]
fn descriptions_of_hardware() {
    let find = |path: &Path| hardware::find(&path.display().to_string()).map(drop).map_err(told);
    Reader::new("hardware", "a.ron", repository("hardware")).test(find);
    let network = |path: &Path| hardware::network(&path.display().to_string()).map(drop).map_err(told);
    Reader::new("network", "a.ron", repository("hardware/networks")).test(network);
}

#[test]
fn configurations_of_others() {
    let read = |path: &Path| {
        let bytes = fs::read(path).expect("a file");
        let mistakes = |mistakes: &[_], text: &str| told(CommandError::mistakes(mistakes, path, text));
        let text = decode(&bytes).map_err(|mistake| mistakes(&[*mistake], ""))?;
        let options =
            ImportOptions { ranks: Some(4), sequences: Some(2), length: Some(64), ..ImportOptions::default() };
        import(text, &options).map(|imported| drop(imported.file("a"))).map_err(|found| mistakes(&found, text))
    };
    let deepspeed = br#"{
  "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95]}}, "gradient_clipping": 1.0,
  "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8, "offload_optimizer": {"device": "nvme", "ratio": 0.5}}
}"#;
    let accelerate =
        b"compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nfsdp_config:\n  \
        fsdp_version: 2\n  fsdp_reshard_after_forward: true\n  fsdp_activation_checkpointing: 'true'\nnum_machines: 2\n\
        num_processes: 4\n";
    Reader::new("import", "a.yaml", vec![deepspeed.to_vec(), accelerate.to_vec()]).test(read);
}

#[test]
fn hostfiles() {
    let read = |path: &Path| {
        let reach = Reach {
            hosts: Vec::new(),
            hostfile: Some(path.to_owned()),
            launcher: PathBuf::new(),
            ssh: String::new(),
            interface: None,
            folder: PathBuf::new(),
        };
        hosts::of(&reach).map(drop).map_err(told)
    };
    let file = "\u{feff}# ours\nnode1 slots=4\n\n  ann@node2:4 # the new one\nnode-3.site\n";
    Reader::new("hostfile", "hosts", vec![file.into()]).test(read);
}

/// Reads all documents of a file, bad ones included.
fn documents(path: &Path) -> Result<(), String> {
    let arguments = TokenizeArguments {
        tokenizer: PathBuf::new(),
        inputs: vec![path.to_owned()],
        out: PathBuf::new(),
        read_as: None,
        field: "text".to_owned(),
        column: "text".to_owned(),
        skip_bad: true,
        separator: None,
        threads: None,
    };
    let mut passed = PassedRecords::new(arguments.skip_bad);
    let reader = DocumentsReader::new(&arguments, None).map_err(told)?;
    reader.for_each(&mut passed, |_| true).map_err(told)?;
    passed.first().map_or(Ok(()), |first| Err(told(first)))
}

#[test]
fn lines_of_json() {
    let lines =
        b"{\"text\": \"one\", \"id\": 1}\n{\"id\": [1, {\"a\": null}], \"text\": \"\\ud83d\\ude00 t\\u0000\"}\n";
    Reader::new("jsonl", "a.jsonl", vec![lines.to_vec()]).test(documents);
}

#[test]
fn texts() {
    Reader::new("text", "a.txt", vec!["The first line,\nand 是的。\n[1] A footnote".into()]).test(documents);
}

/// A table of texts, in two groups of rows.
fn table(schema: &str, properties: WriterProperties) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let mut file = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut file, schema, Arc::new(properties)).expect("a table");
    for texts in [["one", "two", "one", "three"], ["four", "four", "", "five"]] {
        let mut group = writer.next_row_group().expect("a group");
        let mut column = group.next_column().expect("a column").expect("texts");
        let values: Vec<ByteArray> = texts.into_iter().map(ByteArray::from).collect();
        column.typed::<ByteArrayType>().write_batch(&values, Some(&[1; 4]), Some(&[0; 4])).expect("written");
        column.close().expect("texts");
        group.close().expect("a group");
    }
    writer.close().expect("a table");
    file
}

#[test]
fn tables_of_parquet() {
    let required = "message m { required binary text (UTF8); }";
    let optional = "message m { optional binary text (UTF8); }";
    let builder = WriterProperties::builder;
    let mut files = Vec::new();
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
    ] {
        files.push(table(required, builder().set_compression(compression).build()));
    }
    for encoding in [Encoding::PLAIN, Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY] {
        let properties = builder().set_dictionary_enabled(false).set_encoding(encoding);
        files.push(table(optional, properties.set_writer_version(WriterVersion::PARQUET_2_0).build()));
    }
    Reader::new("parquet", "a.parquet", files).test(documents);
}

fn tokenizer_in(folder: &Path, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    fs::read(tiny_tokenizer::write(folder, change)).expect("a tokenizer")
}

#[test]
fn tokenizers() {
    let folder = tempfile::tempdir().expect("a folder");
    let pieces: Vec<_> = ["<unk>", "a", "b", "ab", "▁", "▁a"].iter().zip(0..).map(|(it, n)| json!([it, -n])).collect();
    let words = json!({"<unk>": 0, "the": 1, "thing": 2, "##s": 3, "a": 4});
    let of = |model: Value, parts: Value| {
        tokenizer_in(folder.path(), |json| {
            json["model"] = model;
            parts.as_object().expect("parts").iter().for_each(|(name, part)| json[name] = part.clone());
        })
    };
    let files = vec![
        tokenizer_in(folder.path(), |_| {}),
        of(
            json!({"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": false}),
            json!({
                "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Replace",
                    "pattern": {"Regex": " {2,}"}, "content": " "}, {"type": "Prepend", "prepend": "x"}]},
                "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
                "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
            }),
        ),
        of(
            json!({"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": words}),
            json!({
                "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                    "strip_accents": null, "lowercase": true},
                "pre_tokenizer": {"type": "BertPreTokenizer"},
                "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}],
                    "pair": [{"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {}},
                "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
                "truncation": {"direction": "Right", "max_length": 512, "strategy": "LongestFirst", "stride": 0},
                "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": 8, "pad_id": 0,
                    "pad_type_id": 0, "pad_token": "<unk>"},
            }),
        ),
        of(
            json!({"type": "WordLevel", "unk_token": "<unk>", "vocab": words}),
            json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, {"type": "Punctuation",
                "behavior": "Isolated"}, {"type": "Digits", "individual_digits": true}]}, "decoder": null}),
        ),
    ];
    let read = |path: &Path| {
        let tokenizer = Tokenizer::open(path).map_err(|error| error.report())?;
        let ids = tokenizer.encode("The things, 12 é\n a<|endoftext|>").map_err(|error| error.report())?;
        tokenizer.decode(&ids);
        let mut stream = tokenizer.stream();
        ids.into_iter().chain([u32::MAX]).for_each(|id| drop(stream.next(id)));
        stream.end();
        Ok(())
    };
    Reader::new("tokenizer", "tokenizer.json", files).test(read);
}

#[test]
fn files_of_tokens() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokenizer = Tokenizer::open(&tiny_tokenizer::write(folder.path(), |_| {})).expect("a tokenizer");
    let path = folder.path().join("ids.bin");
    let mut writer = TokenFileWriter::create(&path, &tokenizer).expect("a file");
    for document in 0..3 {
        writer.add(&[document; 40]).expect("ids");
        writer.end_document().expect("a document");
    }
    writer.finish().expect("a file");
    let llm_c: Vec<u8> = [20_240_520u32, 1, 40].iter().flat_map(|word| word.to_le_bytes()).collect();
    let llm_c = [llm_c, vec![0; 1024 - 12], vec![1; 80]].concat();
    let bare = [1u16, 500, 7].repeat(30).iter().flat_map(|id| id.to_le_bytes()).collect();
    let read = |path: &Path| {
        let text = Text::open(path, None, 8, 600).map_err(|error| error.report())?;
        let (mut input, mut targets) = ([0; 8], [0; 8]);
        (0..text.windows().min(4)).for_each(|index| text.window(index, &mut input, &mut targets));
        text.require_sequences().map_err(|error| error.report())?;
        (0..4).for_each(|index| text.training(Draw { seed: 1, step: 0, index }, &mut input, &mut targets));
        text.held_out(text.held_out_count() - 1, &mut input, &mut targets);
        Ok(())
    };
    Reader::new("tokens", "ids.bin", vec![fs::read(path).expect("a file"), llm_c, bare]).test(read);
}

fn tensors(name: &str) -> Vec<u8> {
    let bytes: Vec<u8> = (0..24).collect();
    let views = [
        (format!("{name}.weight"), TensorView::new(Dtype::F32, vec![2, 2], &bytes[..16])),
        (format!("{name}.bias"), TensorView::new(Dtype::BF16, vec![4], &bytes[16..])),
    ];
    serialize(views.map(|(name, view)| (name, view.expect("a tensor"))), None).expect("a file")
}

fn folder(path: &Path) -> Result<(), String> {
    let path = path.parent().expect("a folder");
    let folder = Folder::open(path).map_err(|error: WeightsError| error.report())?;
    for found in folder.tensors.values() {
        let bits: usize = found.shape.iter().product::<usize>() * found.dtype.bitsize();
        folder.read(found, 0, &mut vec![0; bits / 8]).map_err(|error| error.report())?;
    }
    Ok(())
}

#[test]
fn published_weights() {
    Reader::new("safetensors", "model.safetensors", vec![tensors("a")]).test(folder);
    let map = json!({"a.weight": "a.safetensors", "a.bias": "a.safetensors", "b.weight": "b.safetensors",
        "b.bias": "b.safetensors"});
    let index = json!({"metadata": {"total_size": 48}, "weight_map": map}).to_string();
    Reader::new("index", "model.safetensors.index.json", vec![index.into()])
        .beside("a.safetensors", tensors("a"))
        .beside("b.safetensors", tensors("b"))
        .test(folder);
    let config =
        json!({"model_type": "llama", "hidden_size": 64, "rope_theta": 1e4, "bos_token_id": null, "tie": [true, "a"]});
    let python = config.to_string().replace("null", "NaN");
    Reader::new("config", "config.json", vec![config.to_string().into(), python.into()])
        .beside("model.safetensors", tensors("a"))
        .test(folder);
}

/// Everything that commands do with a checkpoint.
fn inspect(path: &Path) -> Result<(), String> {
    let folder = path.parent().expect("a folder");
    let reports = |error: CheckpointError| error.report();
    let examined = Checkpoint::examine(folder, 1, &|_| {});
    let opened = Checkpoint::open(folder).map_err(reports)?;
    checkpoint::page(&opened);
    opened.publication().map_err(reports)?;
    let out = folder.join("exported");
    // Its errors name a tensor, or the folder that is made.
    let _ = zero_files::checkpoint::export(&opened, &out, Some(WeightType::F32), &|_| {});
    let _ = fs::remove_dir_all(out);
    zero_files::checkpoint::compare(&opened, &opened, &|_| {}).map_err(reports)?;
    examined.into_iter().next().map_or(Ok(()), |error| Err(reports(error)))
}

/// The files of a small checkpoint.
fn sample() -> Vec<(String, Vec<u8>)> {
    let folder = tempfile::tempdir().expect("a folder");
    let saved =
        SampleCheckpoint { published: Some(WeightType::BF16), ..SampleCheckpoint::of_step(3) }.saved(folder.path());
    let entries = fs::read_dir(saved).expect("a checkpoint").map(|entry| entry.expect("an entry"));
    let named = |entry: fs::DirEntry| (entry.file_name().into_string().expect("text"), fs::read(entry.path()));
    entries.map(named).map(|(name, bytes)| (name, bytes.expect("a file"))).collect()
}

/// The line of a manifest with its hash, as if a program had meant it.
fn sealed(line: &[u8]) -> Vec<u8> {
    let hash = json!({"blake3": blake3::hash(line).to_hex().as_str()});
    [line, format!("\n{hash}\n").as_bytes()].concat()
}

#[test]
fn manifests() {
    let files = sample();
    let manifest = &files.iter().find(|(name, _)| name == MANIFEST).expect("a manifest").1;
    let line = manifest.split(|&byte| byte == b'\n').next().expect("a line").to_vec();
    files
        .iter()
        .fold(Reader::new("manifest", MANIFEST, vec![line]), |reader, (name, bytes)| reader.beside(name, bytes.clone()))
        .test_written(|path, line| fs::write(path, sealed(line)).expect("a file"), inspect);
}

/// A file of a checkpoint, whose hash the manifest has.
#[test]
fn files_of_checkpoints() {
    const SHARD: &str = "rank-00000.safetensors";
    let files = sample();
    let of = |wanted: &str| files.iter().find(|(name, _)| name == wanted).expect("a file").1.clone();
    let line = of(MANIFEST).split(|&byte| byte == b'\n').next().expect("a line").to_vec();
    let manifest: Value = serde_json::from_slice(&line).expect("a manifest");
    let put = |path: &Path, shard: &[u8]| {
        let mut manifest = manifest.clone();
        let chunks: Vec<String> = shard.chunks(1 << 20).map(|chunk| blake3::hash(chunk).to_hex().to_string()).collect();
        manifest["files"][0]["bytes"] = json!(shard.len());
        manifest["files"][0]["chunks"] = json!(chunks);
        fs::write(path.with_file_name(MANIFEST), sealed(manifest.to_string().as_bytes())).expect("a file");
        fs::write(path, shard).expect("a file");
    };
    files
        .iter()
        .fold(Reader::new("shard", SHARD, vec![of(SHARD)]), |reader, (name, bytes)| reader.beside(name, bytes.clone()))
        .test_written(put, inspect);
}

#[test]
fn profiles() {
    let unit = |source| Unit { field: "unit", index: Some(source), params: 100, takes: 100, source, ..Unit::NONE };
    let config = Config { mesh: Mesh::of_zero(2), stage: 3, ..Config::PLAIN };
    let plan = PlanBuf::new("Two", config, &[unit(0), unit(1)]);
    let file = plan.with(|plan| view::profile::tests::trace(plan, 3));
    Reader::new("profile", "profile.json", vec![file.into()])
        .test(|path| view::profile::read(path, &plan).map(drop).map_err(told));
}
