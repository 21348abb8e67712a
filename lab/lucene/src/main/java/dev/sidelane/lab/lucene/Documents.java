// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.lab.lucene;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Random;
import org.apache.lucene.analysis.standard.StandardAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.store.FSDirectory;

/** Generator of documents: the same on every machine, with word frequencies as in real text (Zipf's law). */
final class Documents {
    static final String TEXT = "text";
    static final int COUNT = 10_000;
    static final int WORDS = 20_000;
    private static final int LENGTH_MIN = 100;
    private static final int LENGTH_MAX = 500;
    private static final long SEED = 1;

    private Documents() {}

    /** Writes a Lucene index of all generated documents. */
    static void write(Path index) throws IOException {
        Random random = new Random(SEED);
        IndexWriterConfig config = new IndexWriterConfig(new StandardAnalyzer());
        config.setOpenMode(IndexWriterConfig.OpenMode.CREATE);
        try (IndexWriter writer = new IndexWriter(FSDirectory.open(index), config)) {
            for (int number = 0; number < COUNT; number++) {
                Document document = new Document();
                document.add(new TextField(TEXT, text(random), Field.Store.NO));
                writer.addDocument(document);
            }
            writer.forceMerge(1);
        }
    }

    /** Returns the word of this frequency rank; rank 0 is the most frequent word. */
    static String word(int rank) {
        return "w" + rank;
    }

    /** Draws a rank whose logarithm is uniform: the n-th word is about 1/n times as frequent as the first word. */
    static int rank(Random random) {
        return (int) Math.exp(random.nextDouble() * Math.log(WORDS)) - 1;
    }

    private static String text(Random random) {
        int length = LENGTH_MIN + random.nextInt(LENGTH_MAX - LENGTH_MIN);
        StringBuilder text = new StringBuilder();
        for (int position = 0; position < length; position++) {
            text.append(word(rank(random))).append(' ');
        }
        return text.toString();
    }
}
