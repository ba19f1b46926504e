/* Reads TOML files with toml++. */
#include "toml.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace {

struct value {
    std::string table, key, text;
    toml_kind kind;
    int line;
};

/* The text of a string or an integer. False: it is neither. */
bool element_text(const toml::node &node, std::string &text) {
    if (const auto *string = node.as_string())
        text = string->get();
    else if (const auto *integer = node.as_integer())
        text = std::to_string(integer->get());
    else
        return false;
    return true;
}

/* A list of strings or integers has its elements in `text`; any other list is of the kind TOML_OTHER. */
toml_kind list_kind(const toml::array &list, std::string &text) {
    for (const toml::node &node : list) {
        std::string element;
        if (!element_text(node, element)) return TOML_OTHER;
        text += (text.empty() ? "" : ",") + element;
    }
    return TOML_LIST;
}

toml_kind node_kind(const toml::node &node, std::string &text) {
    if (element_text(node, text)) return node.is_string() ? TOML_STRING : TOML_INTEGER;
    if (const auto *boolean = node.as_boolean()) {
        text = boolean->get() ? "true" : "false";
        return TOML_BOOLEAN;
    }
    if (const auto *real = node.as_floating_point()) {
        char digits[40];
        std::snprintf(digits, sizeof digits, "%.17g", real->get());
        text = digits;
        return TOML_REAL;
    }
    if (const auto *list = node.as_array()) return list_kind(*list, text);
    return node.is_table() ? TOML_TABLE : TOML_OTHER;
}

void add_values(std::vector<value> &values, const toml::table &from, const std::string &table, bool is_top) {
    for (const auto &[key, node] : from) {
        const int line = static_cast<int>(key.source().begin.line);
        const toml::table *inner = node.as_table();
        const std::string name(key.str());
        if (is_top && inner) {
            values.push_back({name, "", "", TOML_TABLE, line});
            add_values(values, *inner, name, false);
            continue;
        }
        value v = {table, name, "", TOML_OTHER, line};
        v.kind = node_kind(node, v.text);
        if (v.text.find('\0') != std::string::npos) v.kind = TOML_OTHER;
        values.push_back(std::move(v));
    }
}

std::vector<value> read(std::string_view text, const char *path) {
    std::vector<value> values;
    add_values(values, toml::parse(text, std::string_view(path)), "", true);
    std::stable_sort(values.begin(), values.end(), [](const value &a, const value &b) { return a.line < b.line; });
    return values;
}

} // namespace

bool toml_read(const char *text, size_t size, const char *path, bool (*take)(void *ctx, const toml_value *v), void *ctx,
               char *message, size_t message_size) {
    try {
        for (const value &v : read(std::string_view(text ? text : "", size), path)) {
            const toml_value taken = {v.table.c_str(), v.key.c_str(), v.text.c_str(), v.kind, v.line};
            if (!take(ctx, &taken)) return false;
        }
        return true;
    } catch (const toml::parse_error &error) {
        const std::string_view why = error.description();
        std::snprintf(message, message_size, "%s:%d: %.*s", path, static_cast<int>(error.source().begin.line),
                      static_cast<int>(why.size()), why.data());
    } catch (const std::exception &) {
        std::snprintf(message, message_size, "%s: no memory to read it", path);
    }
    return false;
}
