//! Vocabularies of a model: the ids that the head predicts and those that the embedding reads.
use zero_core::model::vocabulary_fault;
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Narrow {
    embed: Embedding<100, 256, 8>,
    head: LmHead<8, 256>,
}

#[zero(stage = 3)]
struct Equal {
    embed: Embedding<256, 256, 8>,
    head: LmHead<8, 256>,
}

#[zero(stage = 3)]
struct Wide {
    embed: Embedding<256, 256, 8>,
    head: LmHead<8, 100>,
}

#[test]
fn z0213_a_head_that_predicts_what_the_embedding_does_not_take() {
    let fault = vocabulary_fault(Narrow::PROGRAM).expect("a fault");
    let said = "[Z0213] `head` predicts 256 classes, but `embed` takes only ids below 100: in a text, the prediction is the \
        next input\n  fix: give `embed` a vocabulary of 256, or `head` one of 100";
    assert_eq!(fault.as_str(), said);
    assert!(vocabulary_fault(Equal::PROGRAM).is_none());
    assert!(vocabulary_fault(Wide::PROGRAM).is_none());
}
