# Run as a script: write a C file with the bytes of the file IN as `const char NAME[]`, and their number as NAME_size, to OUT.
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUT} "#include <stddef.h>\n\nextern const char ${NAME}[];\nextern const size_t ${NAME}_size;\n\n"
  "const char ${NAME}[] = {\n${bytes}\n};\nconst size_t ${NAME}_size = sizeof ${NAME};\n")
