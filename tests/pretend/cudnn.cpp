// The pretend `libcudnn.so.9`: attention and its gradients by the backend API, as work of a stream of the pretend driver. Knows
// the descriptors and attributes that attention is described by, and refuses all others, wrong types and numbers of values, what
// is not finalized, and tensors that do not fit one another. Gradients have the same bits each time only with the knob for that,
// as in the library. It uses the whole workspace that it asks for.
#include <map>
#include <memory>
#include <set>

#include "attention.h"
#include "symbols.h"

#define API extern "C" __attribute__((visibility("default")))
extern "C" int pretend_enqueue(void* stream, int (*run)(void*), void* data, void (*drop)(void*));

namespace {

enum Status { SUCCESS = 0, BAD_PARAM = 2000, NOT_FINALIZED = 2003, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000 };
enum Type { HANDLE = 0, DATA = 1, BOOLEAN = 2, INT64 = 3, POINTER = 6, HEURISTIC = 8, KNOB = 9, NOTE = 11, MODE = 14, DESCRIPTOR = 15 };
enum Kind {
    ENGINE = 2, CONFIGURATION = 3, HEURISTICS = 4, PLAN = 5, KNOB_CHOICE = 7, GRAPH = 15, PACK = 16, TENSOR = 17, DEVICE = 38,
    FORWARD = 41, BACKWARD = 43, MASK = 44,
};
const int64_t STAGES = 14, FORWARD_ENGINE = 9, ORDERED_ENGINE = 13, OTHER_ENGINE = 12;
// Ids of tensors in the order of their attributes, of forward and of backward.
enum { Q, K, V, O, STATISTICS, SCALE, DQ, DK, DV, DO, TENSORS };

thread_local std::string last_error;

int refused(int status, const std::string& why) {
    last_error = why;
    return status;
}

struct Value;
using Held = std::shared_ptr<Value>;

struct Attribute {
    int type = -1;
    int64_t count = 0;
    std::string bytes;
    std::vector<Held> parts;
    template <class T> std::vector<T> as() const {
        std::vector<T> values(bytes.size() / sizeof(T));
        memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
        return values;
    }
};

// The descriptor behind a handle. Descriptors that refer to it keep it alive.
struct Value {
    int kind;
    bool finalized = false;
    std::map<int, Attribute> attributes;
    bool has(int name) const { return attributes.count(name) != 0; }
    int64_t number(int name) const { return attributes.at(name).as<int64_t>()[0]; }
    int word(int name) const { return attributes.at(name).as<int>()[0]; }
    const Value& part(int name) const { return *attributes.at(name).parts[0]; }
};

struct Handle { void* stream = nullptr; };

// The values that an attribute may have: their type, how many and, if they are descriptors, of which kind.
struct Rule {
    int type;
    int64_t least, most;
    int kind = -1;
    bool optional = false;
};

const std::map<int, std::map<int, Rule>>& rules() {
    const Rule tensor = {DESCRIPTOR, 1, 1, TENSOR}, graph = {DESCRIPTOR, 1, 1, GRAPH}, number = {INT64, 1, 1};
    const Rule device = {DESCRIPTOR, 1, 1, DEVICE}, flag = {BOOLEAN, 1, 1, -1, true}, maybe = {DESCRIPTOR, 1, 1, TENSOR, true};
    static const std::map<int, std::map<int, Rule>> all = {
        {TENSOR, {{900, number}, {901, {DATA, 1, 1}}, {902, {INT64, 4, 4}}, {903, {INT64, 4, 4}}, {906, number}, {907, flag}, {908, flag}}},
        {MASK, {{3000, tensor}, {3003, maybe}, {3005, tensor}, {3006, tensor}, {3007, {MODE, 1, 1}}}},
        {GRAPH, {{801, {DESCRIPTOR, 1, 2, -1}}}},
        {FORWARD, {{2800, tensor}, {2801, tensor}, {2802, tensor}, {2803, tensor}, {2804, tensor}, {2805, tensor}, {2811, graph}, {2812, number}, {2813, number}}},
        {BACKWARD, {{2851, tensor}, {2852, tensor}, {2853, tensor}, {2854, tensor}, {2855, tensor}, {2856, tensor}, {2859, tensor}, {2860, tensor},
                    {2861, tensor}, {2862, tensor}, {2867, graph}, {2868, number}, {2869, number}}},
        {DEVICE, {{2701, {HANDLE, 1, 1}}}},
        {HEURISTICS, {{200, {HEURISTIC, 1, 1}}, {201, graph}, {204, device}}},
        {ENGINE, {{1300, graph}, {1301, number}, {1307, device}}},
        {KNOB_CHOICE, {{600, {KNOB, 1, 1}}, {601, number}}},
        {CONFIGURATION, {{300, {DESCRIPTOR, 1, 1, ENGINE}}, {302, {DESCRIPTOR, 1, 64, KNOB_CHOICE, true}}}},
        {PLAN, {{401, {DESCRIPTOR, 1, 1, CONFIGURATION}}, {407, device}}},
        {PACK, {{1000, {INT64, 1, 64}}, {1001, {POINTER, 1, 64}}, {1003, {POINTER, 1, 1}}}},
    };
    return all;
}

size_t width(int type) {
    switch (type) {
        case BOOLEAN: return 1;
        case INT64: case POINTER: case HANDLE: return 8;
        default: return 4;
    }
}

// Whether a tensor has these sizes, and is of bf16 with rows of whole heads at any stride, or of f32 and packed.
bool fits(const Value& tensor, std::vector<int64_t> sizes, bool narrow, bool is_virtual, bool by_value) {
    auto flag = [&](int name) { return tensor.has(name) && tensor.attributes.at(name).bytes[0]; };
    auto strides = tensor.attributes.at(903).as<int64_t>();
    bool packed = strides[3] == 1 && strides[2] == sizes[3] && strides[1] == sizes[3] * sizes[2] && strides[0] == strides[1] * sizes[1];
    bool rows = strides[3] == 1 && strides[1] == sizes[3] && strides[2] >= sizes[1] * sizes[3] && strides[0] == strides[2] * sizes[2] && strides[2] % 8 == 0;
    return tensor.attributes.at(902).as<int64_t>() == sizes && tensor.word(901) == (narrow ? 9 : 0) && tensor.number(900) == 16 &&
           flag(907) == is_virtual && flag(908) == by_value && (by_value || (narrow ? rows : packed));
}

// The attention that an operation describes, and the numbers that it reads on the host.
struct Described {
    bool is_backward;
    int64_t sizes[4], key_heads;
    int64_t tensors[TENSORS];
    std::vector<int64_t> strides[TENSORS];
    int64_t hidden, window = -1;
};

int describe(const Value& operation, Described& to) {
    to.is_backward = operation.kind == BACKWARD;
    std::vector<int> names = {2800, 2801, 2802, 2803, 2804, 2805};
    if (to.is_backward) names = {2851, 2852, 2853, 2854, 2855, 2856, 2859, 2860, 2861, 2862};
    const Value& queries = operation.part(names[Q]);
    auto sizes = queries.attributes.at(902).as<int64_t>(), of_keys = operation.part(names[K]).attributes.at(902).as<int64_t>();
    std::copy(sizes.begin(), sizes.end(), to.sizes);
    to.key_heads = of_keys[1];
    if (sizes[3] % 8 || sizes[3] > 128 || to.key_heads < 1 || sizes[1] % to.key_heads) return refused(NOT_SUPPORTED, "heads of another kind");
    of_keys = {sizes[0], to.key_heads, sizes[2], sizes[3]};
    for (size_t i = 0; i < names.size(); i++) {
        const Value& tensor = operation.part(names[i]);
        bool keys = i == K || i == V || i == DK || i == DV, statistics = i == STATISTICS, scale = i == SCALE;
        std::vector<int64_t> expected = keys ? of_keys : sizes;
        if (statistics) expected[3] = 1;
        if (scale) expected = {1, 1, 1, 1};
        if (!fits(tensor, expected, !statistics && !scale, false, scale)) return refused(BAD_PARAM, "a tensor that does not fit: " + std::to_string(names[i]));
        to.tensors[i] = tensor.number(906);
        to.strides[i] = tensor.attributes.at(903).as<int64_t>();
    }
    int first = to.is_backward ? 2867 : 2811;
    // Scores go through one mask after another, which hide tokens that follow, and tokens before a window.
    const Attribute& masks = operation.part(first).attributes.at(801);
    int64_t scores = operation.number(first + 1);
    for (size_t i = 0; i < masks.parts.size(); i++) {
        const Value& mask = *masks.parts[i];
        if (mask.kind != MASK) return refused(BAD_PARAM, "scores that are changed by no mask");
        std::vector<int64_t> square = {sizes[0], sizes[1], sizes[2], sizes[2]};
        bool bound = mask.has(3003), chained = mask.part(3000).number(906) == scores;
        if (!chained || !fits(mask.part(3000), square, false, true, false) || !fits(mask.part(3006), square, false, true, false) ||
            !fits(mask.part(3005), {1, 1, 1, 1}, false, false, true) || bound != (i == 1) || mask.word(3007) != (bound ? 302 : 303))
            return refused(BAD_PARAM, "a mask that is not known");
        if (bound && !fits(mask.part(3003), {1, 1, 1, 1}, false, false, true)) return refused(BAD_PARAM, "a bound that is no number");
        if (bound) to.window = mask.part(3003).number(906);
        to.hidden = mask.part(3005).number(906);
        scores = mask.part(3006).number(906);
    }
    return scores == operation.number(first + 2) ? SUCCESS : refused(BAD_PARAM, "scores that come from no mask");
}

std::map<int64_t, int64_t> knobs(const Value& configuration) {
    std::map<int64_t, int64_t> all;
    if (configuration.has(302))
        for (auto& knob : configuration.attributes.at(302).parts) all[knob->word(600)] = knob->number(601);
    return all;
}

const Value& operation(const Value& graph) { return *graph.attributes.at(801).parts[0]; }

// Bytes of accumulators, as on compute capability 9.0, or a status.
int workspace(const Value& configuration, int64_t& bytes) {
    const Value& engine = configuration.part(300);
    Described of;
    if (int status = describe(operation(engine.part(1300)), of)) return status;
    int64_t number = engine.number(1301), rows = of.sizes[0] * of.sizes[1] * of.sizes[2];
    auto set = knobs(configuration);
    int64_t stages = set.count(STAGES) ? set[STAGES] : 0;
    bytes = 256 + strtoll(pretend::word("dnn_room").c_str(), nullptr, 10);
    if (!of.is_backward) return number == FORWARD_ENGINE && !set.count(STAGES) ? SUCCESS : refused(NOT_SUPPORTED, "an engine of another pass");
    bool ordered = number == ORDERED_ENGINE && stages == 4, scattered = stages == 0 && (number == ORDERED_ENGINE || number == OTHER_ENGINE);
    if (!ordered && !scattered) return refused(NOT_SUPPORTED, "an engine without this knob");
    bytes += rows * (4 + 4 * of.sizes[3]) + (of.key_heads < of.sizes[1] ? rows * 4 * of.sizes[3] : 0);
    return SUCCESS;
}

int check(Value& value) {
    for (auto& [name, rule] : rules().at(value.kind))
        if (!rule.optional && !value.has(name)) return refused(BAD_PARAM, "without attribute " + std::to_string(name));
    Described of;
    int64_t bytes;
    switch (value.kind) {
        case FORWARD: case BACKWARD: return describe(value, of);
        case CONFIGURATION: return workspace(value, bytes);
        case HEURISTICS: return value.word(200) == 3 ? SUCCESS : refused(NOT_SUPPORTED, "another mode");
        case PACK: {
            auto ids = value.attributes.at(1000).as<int64_t>();
            bool once = std::set<int64_t>(ids.begin(), ids.end()).size() == ids.size();
            return once && ids.size() == size_t(value.attributes.at(1001).count) ? SUCCESS : refused(BAD_PARAM, "ids without addresses");
        }
        default: return SUCCESS;
    }
}

Held made(int kind) {
    auto value = std::make_shared<Value>();
    value->kind = kind, value->finalized = true;
    return value;
}

void put(Value& to, int name, int type, const void* from, size_t bytes) {
    to.attributes[name] = {type, 1, std::string(static_cast<const char*>(from), bytes), {}};
}

// The ways that are suggested for a graph, the best first.
std::vector<Held> suggested(const Value& heuristics) {
    std::vector<Held> ways;
    if (pretend::fails("dnn_heuristic")) return ways;
    const Attribute& graph = heuristics.attributes.at(201);
    bool backward = operation(*graph.parts[0]).kind == BACKWARD;
    // `PRETEND_FAIL=dnn_way:2`: another tile.
    int64_t tile = 2 + strtoll(pretend::word("dnn_way").c_str(), nullptr, 10);
    for (int64_t number : backward ? std::vector<int64_t>{OTHER_ENGINE, ORDERED_ENGINE} : std::vector<int64_t>{FORWARD_ENGINE}) {
        Held engine = made(ENGINE), way = made(CONFIGURATION);
        engine->attributes[1300] = graph;
        put(*engine, 1301, INT64, &number, 8);
        Attribute choices = {DESCRIPTOR, 0, "", {}};
        for (int64_t knob : {40, 24}) {
            Held choice = made(KNOB_CHOICE);
            int kind = int(knob);
            put(*choice, 600, KNOB, &kind, 4), put(*choice, 601, INT64, &tile, 8);
            choices.parts.push_back(choice), choices.count++;
        }
        way->attributes[300] = {DESCRIPTOR, 1, "", {engine}};
        way->attributes[302] = choices;
        ways.push_back(way);
    }
    return ways;
}

struct Call {
    pretend::AttentionCall of;
    bool is_backward;
    char* workspace;
    int64_t workspace_bytes;
    int run() const {
        // All of it is overwritten, so that a test notices a workspace in which something else lies.
        memset(workspace, 0xff, workspace_bytes);
        is_backward ? attend_backward(of) : attend(of);
        return SUCCESS;
    }
};

}  // namespace

API size_t cudnnGetVersion() {
    std::string version = pretend::word("dnn_version");
    return version.empty() ? 92801 : strtoull(version.c_str(), nullptr, 10);
}
API const char* cudnnGetErrorString(int status) {
    switch (status) {
        case SUCCESS: return "CUDNN_STATUS_SUCCESS";
        case NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
        case EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
        default: return "CUDNN_STATUS_BAD_PARAM";
    }
}
API void cudnnGetLastErrorString(char* to, size_t bytes) { snprintf(to, bytes, "%s", last_error.c_str()); }
API int cudnnCreate(Handle** to) {
    if (pretend::fails("dnn_create")) return refused(BAD_PARAM, "no handle");
    return *to = new Handle, SUCCESS;
}
API int cudnnDestroy(Handle* handle) { return delete handle, SUCCESS; }
API int cudnnSetStream(Handle* handle, void* stream) { return handle->stream = stream, SUCCESS; }

API int cudnnBackendCreateDescriptor(int kind, Held** to) {
    if (!rules().count(kind)) return refused(NOT_SUPPORTED, "a descriptor that is not known");
    *to = new Held(std::make_shared<Value>());
    (**to)->kind = kind;
    return SUCCESS;
}
API int cudnnBackendDestroyDescriptor(Held* of) { return delete of, SUCCESS; }

API int cudnnBackendSetAttribute(Held* of, int name, int type, int64_t count, const void* values) {
    Value& to = **of;
    auto rule = rules().at(to.kind).find(name);
    if (to.finalized || rule == rules().at(to.kind).end()) return refused(BAD_PARAM, "an attribute that is not known: " + std::to_string(name));
    if (type != rule->second.type || count < rule->second.least || count > rule->second.most) return refused(BAD_PARAM, "other values: " + std::to_string(name));
    Attribute attribute = {type, count, "", {}};
    if (type != DESCRIPTOR) {
        attribute.bytes.assign(static_cast<const char*>(values), count * width(type));
    } else {
        for (int64_t i = 0; i < count; i++) attribute.parts.push_back(**(static_cast<Held* const*>(values) + i));
        for (auto& part : attribute.parts) {
            if (!part->finalized) return refused(NOT_FINALIZED, "a part that is not finalized");
            if (rule->second.kind >= 0 && part->kind != rule->second.kind) return refused(BAD_PARAM, "a part of another kind");
        }
    }
    to.attributes[name] = attribute;
    return SUCCESS;
}

API int cudnnBackendFinalize(Held* of) {
    if (int status = check(**of)) return status;
    (*of)->finalized = true;
    return SUCCESS;
}

API int cudnnBackendGetAttribute(Held* of, int name, int type, int64_t most, int64_t* count, void* values) {
    const Value& from = **of;
    if (!from.finalized) return refused(NOT_FINALIZED, "a descriptor that is not finalized");
    int64_t bytes;
    if ((from.kind == CONFIGURATION && name == 303) || (from.kind == PLAN && name == 402)) {
        if (type != INT64 || most < 1) return refused(BAD_PARAM, "other values");
        *count = 1;
        int status = workspace(from.kind == PLAN ? from.part(401) : from, bytes);
        memcpy(values, &bytes, 8);
        return status;
    }
    if (from.kind == ENGINE && name == 1303) {
        int note = 0;
        if (type != NOTE || most < 1) return refused(BAD_PARAM, "other values");
        return memcpy(values, &note, 4), *count = 1, SUCCESS;
    }
    std::vector<Held> parts;
    if (from.kind == HEURISTICS && name == 202) {
        parts = suggested(from);
    } else if (!from.has(name) || from.attributes.at(name).type != type) {
        return refused(BAD_PARAM, "an attribute that is not there: " + std::to_string(name));
    } else if (type != DESCRIPTOR) {
        const Attribute& found = from.attributes.at(name);
        *count = found.count;
        memcpy(values, found.bytes.data(), std::min(most, found.count) * width(type));
        return SUCCESS;
    } else {
        parts = from.attributes.at(name).parts;
    }
    if (type != DESCRIPTOR) return refused(BAD_PARAM, "other values");
    *count = int64_t(parts.size());
    for (int64_t i = 0; i < std::min(most, *count); i++) {
        Held& to = *static_cast<Held* const*>(values)[i];
        if (to->kind != parts[i]->kind) return refused(BAD_PARAM, "room of another kind");
        to = parts[i];
    }
    return SUCCESS;
}

API int cudnnBackendExecute(Handle* handle, Held* plan, Held* pack) {
    if (!handle || !(*plan)->finalized || !(*pack)->finalized) return refused(BAD_PARAM, "what is not finalized");
    if (pretend::fails("dnn_execute")) return refused(EXECUTION_FAILED, "a kernel that does not start");
    const Value& configuration = (*plan)->part(401);
    Described is;
    if (int status = describe(operation(configuration.part(300).part(1300)), is)) return status;
    std::map<int64_t, char*> at;
    auto ids = (*pack)->attributes.at(1000).as<int64_t>();
    auto pointers = (*pack)->attributes.at(1001).as<char*>();
    for (size_t i = 0; i < ids.size(); i++) at[ids[i]] = pointers[i];
    size_t expected = (is.is_backward ? TENSORS : DQ) + 1 + (is.window >= 0);
    auto call = std::make_unique<Call>();
    auto number = [&](int64_t id) { return at.count(id) && at[id] ? *reinterpret_cast<const float*>(at[id]) : NAN; };
    if (ids.size() != expected || number(is.hidden) != -INFINITY) return refused(BAD_PARAM, "other tensors than the plan has");
    auto heads = [&](int which, int64_t count) {
        pretend::Heads heads = {reinterpret_cast<uint16_t*>(at[is.tensors[which]]), count, {}};
        std::copy(is.strides[which].begin(), is.strides[which].end(), heads.strides);
        return heads;
    };
    for (int i = 0; i < (is.is_backward ? TENSORS : DQ); i++)
        if (!at.count(is.tensors[i]) || (i != SCALE && reinterpret_cast<uintptr_t>(at[is.tensors[i]]) % 16)) return refused(BAD_PARAM, "an address that does not fit");
    call->is_backward = is.is_backward;
    if (int status = workspace(configuration, call->workspace_bytes)) return status;
    call->workspace = (*pack)->attributes.at(1003).as<char*>()[0];
    if (!call->workspace || reinterpret_cast<uintptr_t>(call->workspace) % 256) return refused(BAD_PARAM, "a workspace that does not fit");
    pretend::AttentionCall& of = call->of;
    of.sequences = is.sizes[0], of.length = is.sizes[2], of.features = is.sizes[3];
    of.window = is.window >= 0 ? int64_t(number(is.window)) : of.length;
    of.scale = number(is.tensors[SCALE]);
    of.queries = heads(Q, is.sizes[1]), of.keys = heads(K, is.key_heads), of.values = heads(V, is.key_heads), of.output = heads(O, is.sizes[1]);
    of.statistics = reinterpret_cast<float*>(at[is.tensors[STATISTICS]]);
    if (is.is_backward) {
        of.query_gradients = heads(DQ, is.sizes[1]), of.output_gradients = heads(DO, is.sizes[1]);
        of.key_gradients = heads(DK, is.key_heads), of.value_gradients = heads(DV, is.key_heads);
        of.accumulated = reinterpret_cast<float*>(call->workspace);
        static int64_t calls = 0;
        // In the order in which blocks come, unless they take turns.
        of.is_ordered = knobs(configuration).count(STAGES);
        if (!of.is_ordered) of.first = ++calls;
    }
    auto run = [](void* data) { return static_cast<Call*>(data)->run(); };
    auto drop = [](void* data) { delete static_cast<Call*>(data); };
    return pretend_enqueue(handle->stream, run, call.release(), drop) ? refused(EXECUTION_FAILED, "a queue that takes nothing") : SUCCESS;
}
