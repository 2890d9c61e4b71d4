# Writes a C file with the texts of files, FOLDER/FILE as the array PREFIX_NAME:
#     cmake -DFOLDER=… -DTEXTS=NAME=FILE,NAME=FILE,… -DPREFIX=ek_text -DOUTPUT=FILE.c -P embed.cmake
# Called by the build of the library (kernels) and of the program (a measured machine). SPDX-License-Identifier: MIT
string(REPLACE "," ";" texts "${TEXTS}")
set(code "/* Made by cmake/embed.cmake. SPDX-License-Identifier: MIT */\n")
foreach(text IN LISTS texts)
	string(REGEX REPLACE "=.*" "" name "${text}")
	string(REGEX REPLACE "^[^=]*=" "" file "${text}")
	file(READ "${FOLDER}/${file}" bytes HEX)
	string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
	string(REPLACE "'\\x0a'," "'\\n',\n" bytes "${bytes}") # a line of the text is a line here
	string(APPEND code "\nextern const char ${PREFIX}_${name}[];\nconst char ${PREFIX}_${name}[] = {\n${bytes}0};\n")
endforeach()
file(WRITE "${OUTPUT}" "${code}")
