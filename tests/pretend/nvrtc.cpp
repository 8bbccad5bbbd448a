// The pretend `libnvrtc.so.13`: compiles kernels by the system's C++ compiler into a library for the pretend driver, which
// it gives in place of a cubin. Takes the options that the runtime uses and no others, so that a misspelt one is noticed,
// and requires `--fmad=false`, as the host's compiler rounds after each operation. Never makes PTX.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "symbols.h"

#define API extern "C" __attribute__((visibility("default"))) int
extern char** environ;

namespace {

enum Status {
    SUCCESS = 0, INVALID_INPUT = 3, INVALID_OPTION = 5, COMPILATION = 6, NO_EXPRESSIONS_AFTER = 8, NO_NAMES_BEFORE = 9,
    NOT_VALID = 10, INTERNAL = 11,
};

struct Program {
    std::string source, name, log, code;
    std::map<std::string, std::string> headers, symbols;
    std::vector<std::string> expressions;
    bool compiled = false;
};

std::string beside(const char* file) {
    Dl_info about;
    dladdr(reinterpret_cast<void*>(beside), &about);
    std::string path = about.dli_fname;
    return path.substr(0, path.rfind('/') + 1) + file;
}

std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
}

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// A folder that is removed with its files.
struct Folder {
    std::string path;
    std::vector<std::string> files;
    Folder() {
        const char* root = getenv("TMPDIR");
        path = std::string(root ? root : "/tmp") + "/pretend-nvrtc-XXXXXX";
        if (!mkdtemp(path.data())) path.clear();
    }
    ~Folder() {
        for (auto& file : files) unlink(file.c_str());
        rmdir(path.c_str());
    }
    std::string file(const std::string& name) {
        files.push_back(path + "/" + name);
        return files.back();
    }
};

// Runs the compiler, with its output in a file. Returns whether it has succeeded.
bool run(const std::vector<std::string>& command, const std::string& output) {
    std::vector<char*> words;
    for (auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t child;
    int status = -1;
    // A sanitizer that is preloaded is for the kernels, not for their compiler.
    std::vector<char*> variables;
    for (char** variable = environ; *variable; variable++)
        if (strncmp(*variable, "LD_PRELOAD=", 11) != 0) variables.push_back(*variable);
    variables.push_back(nullptr);
    if (posix_spawnp(&child, words[0], &actions, nullptr, words.data(), variables.data()) == 0) waitpid(child, &status, 0);
    posix_spawn_file_actions_destroy(&actions);
    return status == 0;
}

// Translates NVRTC's options for the compiler. Returns a text if one is unknown or missing.
std::string translate(int count, const char* const* options, std::vector<std::string>& command) {
    static const std::regex ignored(
        "--?(gpu-architecture|arch)=(sm|compute)_[0-9]+[af]?|-{1,2}std=c\\+\\+(17|20)|-?-default-device|-?-device-as-default-"
        "execution-space|-?-fmad=false|-?-ftz=false|-?-prec-(div|sqrt)=true|-?-ptxas-options=-v|-?-lineinfo|-?-generate-line-info|"
        "-?-restrict|-?-extra-device-vectorization|-w");
    static const std::regex defines("(-D ?|--define-macro=)(.+)");
    bool rounds = false, target = false;
    for (int i = 0; i < count; i++) {
        std::string option = options[i];
        std::smatch parts;
        if (std::regex_match(option, parts, defines)) command.push_back("-D" + parts[2].str());
        else if (!std::regex_match(option, ignored)) return "unrecognized option " + option;
        rounds |= option.find("-fmad=false") != std::string::npos;
        target |= option.find("arch") != std::string::npos && option.find("=sm_") != std::string::npos;
    }
    if (!rounds) return "kernels are compiled by the host's rounding, so `--fmad=false` is needed";
    return target ? "" : "a cubin needs `--gpu-architecture=sm_..`";
}

// The source with an entry for each name expression. Shared memory whose size a launch gives is as large as a block may
// have.
std::string whole(Program& program) {
    static const std::regex dynamic("extern\\s+__shared__([^;\\[]*?)(\\w+)\\s*\\[\\s*\\]\\s*;");
    std::string source = std::regex_replace(program.source, dynamic, "extern $1$2[];"), rest;
    std::map<std::string, bool> rooms;
    for (std::sregex_iterator at(program.source.begin(), program.source.end(), dynamic), end; at != end; ++at)
        if (!rooms[(*at)[2]]) {
            rooms[(*at)[2]] = true;
            rest += "asm(\".local " + (*at)[2].str() + "\\n.comm " + (*at)[2].str() + ",232448,1024\");\n";
        }
    for (auto& expression : program.expressions) {
        std::string symbol = "pretend_kernel_" + std::to_string(program.symbols.size());
        program.symbols[expression] = symbol;
        rest += "PRETEND_KERNEL(" + symbol + ", " + expression + ")\n";
    }
    return "#line 1 \"" + program.name + "\"\n" + source + "\n#line 1 \"name expressions\"\n" + rest;
}

// Keeps compiled programs below PRETEND_KEEP, for the real compiler: the source, its headers, and a name expression a
// line.
void keep(const Program& program) {
    const char* root = getenv("PRETEND_KEEP");
    if (!root) return;
    std::string names;
    for (auto& expression : program.expressions) names += expression + "\n";
    std::filesystem::path folder(root);
    folder /= std::to_string(std::hash<std::string>()(program.source + names));
    std::filesystem::create_directories(folder / "headers");
    write(folder / program.name, program.source);
    write(folder / "names", names);
    for (auto& [name, text] : program.headers) write(folder / "headers" / name, text);
}

int compile(Program& program, int count, const char* const* options) {
    std::vector<std::string> command = {
        getenv("PRETEND_CXX") ? getenv("PRETEND_CXX") : "g++", "-std=c++17", "-O1", "-march=native", "-ffp-contract=off",
        "-fno-math-errno", "-fno-strict-aliasing", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics",
        "-fno-asynchronous-unwind-tables", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-gnu-unique", "-w", "-pipe",
        "-include", beside("shim.h")};
    program.log = translate(count, options, command);
    if (!program.log.empty()) return INVALID_OPTION;
    if (pretend::fails("compile")) {
        program.log = program.name + "(1): error: PRETEND_FAIL asked for it";
        return COMPILATION;
    }
    if (pretend::number("PRETEND_SANITIZE", 0))
        for (const char* option : {"-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g1"})
            command.push_back(option);
    keep(program);
    Folder folder;
    if (folder.path.empty()) return INTERNAL;
    for (auto& [name, text] : program.headers) write(folder.file(name), text);
    std::string source = folder.file("program.cu.cpp"), output = folder.file("log"), code = folder.file("code.so");
    write(source, whole(program));
    command.insert(command.end(), {"-I" + folder.path, source, "-o", code});
    bool good = run(command, output);
    program.log = read(output);
    program.code = good ? read(code) : "";
    program.compiled = good;
    return good ? SUCCESS : COMPILATION;
}

int give(const std::string& text, char* to) { return memcpy(to, text.data(), text.size()), SUCCESS; }

}  // namespace

API nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, SUCCESS; }

extern "C" __attribute__((visibility("default"))) const char* nvrtcGetErrorString(int status) {
    switch (status) {
        case SUCCESS: return "NVRTC_SUCCESS";
        case INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
        case INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
        case COMPILATION: return "NVRTC_ERROR_COMPILATION";
        case NO_EXPRESSIONS_AFTER: return "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION";
        case NO_NAMES_BEFORE: return "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION";
        case NOT_VALID: return "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID";
        default: return "NVRTC_ERROR_INTERNAL_ERROR";
    }
}

API nvrtcCreateProgram(Program** program, const char* source, const char* name, int count, const char* const* texts,
                       const char* const* names) {
    if (!program || !source || count < 0) return INVALID_INPUT;
    *program = new Program;
    (*program)->source = source;
    (*program)->name = name ? name : "default_program";
    for (int i = 0; i < count; i++) (*program)->headers[names[i]] = texts[i];
    return SUCCESS;
}

API nvrtcDestroyProgram(Program** program) {
    delete *program;
    *program = nullptr;
    return SUCCESS;
}

API nvrtcAddNameExpression(Program* program, const char* expression) {
    if (program->compiled) return NO_EXPRESSIONS_AFTER;
    program->expressions.push_back(expression);
    return SUCCESS;
}

API nvrtcCompileProgram(Program* program, int count, const char* const* options) { return compile(*program, count, options); }

API nvrtcGetLoweredName(Program* program, const char* expression, const char** name) {
    if (!program->compiled) return NO_NAMES_BEFORE;
    auto found = program->symbols.find(expression);
    if (found == program->symbols.end()) return NOT_VALID;
    *name = found->second.c_str();
    return SUCCESS;
}

API nvrtcGetCUBINSize(Program* program, size_t* bytes) { return *bytes = program->code.size(), SUCCESS; }
API nvrtcGetCUBIN(Program* program, char* to) { return give(program->code, to); }
API nvrtcGetProgramLogSize(Program* program, size_t* bytes) { return *bytes = program->log.size() + 1, SUCCESS; }
API nvrtcGetProgramLog(Program* program, char* to) {
    to[program->log.size()] = 0;
    return give(program->log, to);
}
