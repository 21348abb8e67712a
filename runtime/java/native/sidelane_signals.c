/* SPDX-License-Identifier: Apache-2.0
 *
 * The native methods of dev.sidelane.Signals. They return the words' memory; Java code does the
 * stores.
 */
#include <jni.h>

#include "sidelane_signal.h"

/* Returns the memory of a signal's word; NULL if there is no place, or an exception is pending. */
JNIEXPORT jobject JNICALL Java_dev_sidelane_Signals_word(JNIEnv *env, jclass signals, jstring name, jint kind,
							 jboolean of_thread)
{
	uint32_t tid = of_thread ? (uint32_t)syscall(SYS_gettid) : 0;
	const char *text = (*env)->GetStringUTFChars(env, name, NULL);
	uint64_t *word;

	(void)signals;
	if (!text)
		return NULL;
	word = sidelane_signal_word(text, (uint32_t)kind, tid);
	(*env)->ReleaseStringUTFChars(env, name, text);
	if (word == &sidelane_signal_nowhere_)
		return NULL;
	return (*env)->NewDirectByteBuffer(env, word, sizeof(*word));
}

JNIEXPORT jlong JNICALL Java_dev_sidelane_Signals_addressOf(JNIEnv *env, jclass signals, jobject word)
{
	(void)signals;
	return (jlong)(uintptr_t)(*env)->GetDirectBufferAddress(env, word);
}

static uint64_t names_end(void)
{
	struct sidelane_signals_file *file = sidelane_signals();

	return file ? file->head.names_end : 0;
}

/* Sets the name of a tag's value. The caller holds a lock, so only one thread at a time is here. */
JNIEXPORT jboolean JNICALL Java_dev_sidelane_Signals_named(JNIEnv *env, jclass signals, jstring tag, jlong value,
							   jstring name)
{
	const char *tag_text = (*env)->GetStringUTFChars(env, tag, NULL);
	const char *name_text = tag_text ? (*env)->GetStringUTFChars(env, name, NULL) : NULL;
	uint64_t before = names_end();

	(void)signals;
	if (name_text) {
		sidelane_name(tag_text, (uint64_t)value, name_text);
		(*env)->ReleaseStringUTFChars(env, name, name_text);
	}
	if (tag_text)
		(*env)->ReleaseStringUTFChars(env, tag, tag_text);
	return names_end() > before;
}
