# Run as a script in serve/: write a C file with the table `embedded_files` (serve/http/http.h) of the files IN, a list of
# paths from there, to OUT.
set(arrays)
set(rows)
set(number 0)
foreach(path IN LISTS IN)
  file(READ ${path} bytes HEX)
  file(SHA256 ${path} hash)
  string(SUBSTRING ${hash} 0 16 hash)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "/* ${path} */\nstatic const unsigned char file_${number}[] = {\n${bytes}\n};\n")
  string(APPEND rows "    {\"${path}\", file_${number}, sizeof file_${number}, \"\\\"${hash}\\\"\"},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUT} "#include \"serve/http/http.h\"\n\n${arrays}\nconst http_file embedded_files[] = {\n${rows}};\n"
  "const size_t n_embedded_files = sizeof embedded_files / sizeof *embedded_files;\n")
