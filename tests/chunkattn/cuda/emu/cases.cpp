#include "cases.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

namespace {

struct word {
    uint32_t value;
    bool wanted;
};

std::vector<word> parse_words(std::istringstream &line) {
    std::vector<word> words;
    bool floats = false;
    std::string token;
    while (line >> token) {
        const size_t dots = token.find("..");
        if (token == "f32") {
            floats = true;
        } else if (token == "-") {
            words.push_back({0, false});
        } else if (floats) {
            const float f = std::stof(token);
            uint32_t u;
            memcpy(&u, &f, 4);
            words.push_back({u, true});
        } else if (dots != std::string::npos) {
            const uint32_t first = (uint32_t)std::stoul(token, nullptr, 16),
                           last = (uint32_t)std::stoul(token.substr(dots + 2), nullptr, 16);
            for (uint32_t v = first; v <= last; v++) words.push_back({v, true});
        } else {
            words.push_back({(uint32_t)std::stoul(token, nullptr, 16), true});
        }
    }
    return words;
}

std::vector<uint32_t> values(const std::vector<word> &words) {
    std::vector<uint32_t> v;
    v.reserve(words.size());
    for (const word &w : words) v.push_back(w.value);
    return v;
}

void add_shared(std::map<uint32_t, uint32_t> &to, std::istringstream &line) {
    uint32_t at = 0;
    line >> std::hex >> at;
    for (const word &w : parse_words(line)) {
        to[at] = w.value;
        at += 4;
    }
}

/* Whether the line is one of the format. */
bool add_line(test_case &c, const std::string &key, std::istringstream &line) {
    uint32_t r;
    if (key == "source")
        std::getline(line >> std::ws, c.source);
    else if (key == "run")
        line >> c.run;
    else if (key == "threads")
        line >> c.threads;
    else if (key == "arg")
        c.arg = values(parse_words(line));
    else if (key == "device")
        c.device = values(parse_words(line));
    else if (key == "shared")
        add_shared(c.shared, line);
    else if (key == "after")
        add_shared(c.after, line);
    else if (key == "within")
        line >> c.within;
    else if (key == "blocks")
        c.blocks = true;
    else if (key == "in" && line >> std::hex >> r)
        c.in.push_back(values(parse_words(line)));
    else if (key == "out" && line >> std::hex >> r) {
        const std::vector<word> words = parse_words(line);
        c.out.push_back(values(words));
        c.wanted.emplace_back();
        for (const word &w : words) c.wanted.back().push_back(w.wanted);
    } else
        return false;
    return true;
}

} // namespace

static bool agrees(const test_case &c, uint32_t got, uint32_t want) {
    if (c.within == 0) return got == want;
    float g, w;
    memcpy(&g, &got, 4);
    memcpy(&w, &want, 4);
    return std::fabs((double)g - w) <= c.within * std::fmax(1, std::fabs((double)w));
}

static int report(const test_case &c, const char *where, size_t i, size_t thread, uint32_t got, uint32_t want) {
    printf("%s: %s %zu of thread %zu is %08x, not %08x (%s)\n", c.name.c_str(), where, i, thread, got, want, c.source.c_str());
    return 1;
}

int count_wrong(const test_case &c, const uint32_t *out, const uint32_t *after) {
    int n = 0;
    for (size_t r = 0; r < c.out.size(); r++)
        for (size_t t = 0; t < c.out[r].size(); t++, out++)
            if (c.wanted[r][t] && !agrees(c, *out, c.out[r][t])) n += report(c, "register", r, t, *out, c.out[r][t]);
    for (const auto &word : c.after)
        if (*after++ != word.second) n += report(c, "shared memory at", word.first, 0, after[-1], word.second);
    return n;
}

std::vector<test_case> read_cases(const std::string &path, std::string *why) {
    std::ifstream file(path);
    std::vector<test_case> cases;
    *why = file ? "" : path + " cannot be read";
    test_case c;
    for (std::string text; std::getline(file, text);) {
        std::istringstream line(text);
        std::string key;
        if (!(line >> key) || key[0] == '#') continue;
        if (key == "case") {
            c = test_case();
            line >> c.name;
        } else if (key == "end") {
            cases.push_back(c);
        } else if (!add_line(c, key, line)) {
            *why = path;
            *why += ": unknown line " + key;
            return {};
        }
    }
    return cases;
}
