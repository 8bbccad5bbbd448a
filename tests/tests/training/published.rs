//! Published: names of tensors that do not fit a model are reported before it starts, and names have the index of their
//! unit.

use std::process::ExitCode;

use zero_core::layer::TensorNames;
use zero_core::model::{Program, published, require_names};
use zero_runtime::author::{Device, Init, Tensor};
use zero_runtime::plan::Unit;
use zero_runtime::prelude::*;
use zero_runtime::run::main_from;
use zero_tests::pretend::{again, is_another};

#[derive(Layer)]
struct Block {
    #[residual]
    #[weights("norm", "map")]
    mlp: (LayerNorm<8>, Linear<8, 8>),
}

/// A small model.
macro_rules! model {
    ($name:ident { $($fields:tt)* }) => {
        #[zero(stage = 0, ranks = 1, sequences = 1, length = 4, transport = Local)]
        struct $name {
            $($fields)*
        }
    };
}

model!(Plain {
    embed: Embedding<256, 4, 8>,
    blocks: [Block; 2],
    head: LmHead<8, 256>,
});
model!(Named {
    embed: Embedding<256, 4, 8>,
    #[weights("h.{}")]
    blocks: [Block; 2],
    head: LmHead<8, 256>,
});
model!(OneForAll {
    embed: Embedding<256, 4, 8>,
    #[weights("block")]
    blocks: (Block,),
    head: LmHead<8, 256>,
});
model!(MoreNames {
    embed: Embedding<256, 4, 8>,
    #[weights("q", "k", "v")]
    blocks: CausalSelfAttention<8, 2>,
    head: LmHead<8, 256>,
});
model!(NotAll {
    embed: Embedding<256, 4, 8>,
    #[weights("norm", "block.{}")]
    blocks: [(LayerNorm<8>, Block); 2],
    head: LmHead<8, 256>,
});
model!(WithoutIndex {
    embed: Embedding<256, 4, 8>,
    #[weights("h")]
    blocks: [Block; 2],
    head: LmHead<8, 256>,
});
model!(OneName {
    embed: Embedding<256, 4, 8>,
    #[weights("same", "same")]
    blocks: Linear<8, 8>,
    head: LmHead<8, 256>,
});
model!(TwoIndices {
    embed: Embedding<256, 4, 8>,
    #[weights("h.{}")]
    blocks: [Indexed; 2],
    head: LmHead<8, 256>,
});
model!(NoArray {
    embed: Embedding<256, 4, 8>,
    #[weights("h")]
    blocks: Indexed,
    head: LmHead<8, 256>,
});
model!(Inside {
    embed: Embedding<256, 4, 8>,
    blocks: [Misnamed; 2],
    head: LmHead<8, 256>,
});

#[derive(Layer)]
struct Indexed {
    #[weights("{}")]
    map: Linear<8, 8>,
}

#[derive(Layer)]
struct Misnamed {
    #[weights("attention", "mlp")]
    #[residual]
    inner: Block,
}

fn refusal<D: Device>(program: &'static Program<D>) -> String {
    require_names(program).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn names_that_fit_are_no_error() {
    assert_eq!([refusal(Plain::PROGRAM), refusal(Named::PROGRAM), refusal(OneForAll::PROGRAM)], [""; 3]);
}

#[test]
fn z0220_names_that_do_not_fit_a_layer() {
    let start =
        "error[Z0220]: `#[weights]` on `blocks` has 3 names, but the parts of its layer are `qkv`, `out`\n  = help: ";
    let found = refusal(MoreNames::PROGRAM);
    assert!(found.starts_with(start) && found.ends_with("with `_` for a part without one"), "{found}");
    let start = "error[Z0220]: `#[weights]` on `blocks.inner` has 2 names, but the parts of its layer are `mlp`\n";
    assert!(refusal(Inside::PROGRAM).starts_with(start), "{}", refusal(Inside::PROGRAM));
}

#[test]
fn z0221_names_of_more_than_one_tensor() {
    for (found, what) in [
        (
            refusal(WithoutIndex::PROGRAM),
            "the published name of `blocks[0].mlp.0.weight` is `h.norm.weight`, so all elements of `blocks` would have it\n  \
             = help: write `{}` where the index is to stand",
        ),
        (refusal(NotAll::PROGRAM), "the published name of `blocks[0].0.weight` is `norm.weight`, so all elements"),
        (
            refusal(OneName::PROGRAM),
            "`blocks.weight` and `blocks.bias` have the same published name, `same`\n  = help: give one of them another name",
        ),
        (
            refusal(TwoIndices::PROGRAM),
            "the published name of `blocks[0].map.weight` is `h.{}.{}.weight`, with more than one index\n  = help: keep one",
        ),
        (
            refusal(NoArray::PROGRAM),
            "the published name of `blocks.map.weight` is `h.{}.weight`, but `blocks` is not an array field\n  = help: remove",
        ),
    ] {
        assert!(found.starts_with(&format!("error[Z0221]: {what}")), "{found}");
    }
}

/// Runs in a separate process, because a run compares the memory of its process, which here includes all tests, with its plan.
#[test]
fn a_program_with_such_names_does_not_start() {
    if !is_another() {
        let output = again("published::a_program_with_such_names_does_not_start", &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let arguments = ["model", "--steps", "1", "--sample", "0", "--data", data];
    assert_eq!(main_from::<Named>(arguments.map(Into::into)), ExitCode::SUCCESS);
    assert_ne!(main_from::<WithoutIndex>(arguments.map(Into::into)), ExitCode::SUCCESS);
}

#[test]
fn a_name_has_the_index_of_its_unit() {
    let unit = |index| Unit { field: "blocks", index, ..Unit::NONE };
    let tensor = |name: Option<&str>| Tensor {
        name: "map.weight".to_owned(),
        shape: vec![2, 2],
        hidden_rows: Vec::new(),
        embeds: false,
        init: Init::Zeros,
        start: 0,
        weights: name.map(|name| TensorNames { name: name.to_owned(), transposed: false }),
    };
    for (index, name, expected) in [
        (Some(12), Some("h.{}.c_fc.weight"), "h.12.c_fc.weight"),
        (None, Some("ln_f.weight"), "ln_f.weight"),
        (Some(3), None, "blocks.3.map.weight"),
        (None, None, "blocks.map.weight"),
    ] {
        assert_eq!(published(&unit(index), &tensor(name)), expected);
    }
}
