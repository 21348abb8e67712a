// SPDX-License-Identifier: Apache-2.0
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.zip.GZIPInputStream;
import org.apache.lucene.analysis.standard.StandardAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.StringField;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.SerialMergeScheduler;
import org.apache.lucene.store.ByteBuffersDirectory;

/**
 * Benchmark that builds a full-text index in memory over the text below a folder. Arguments:
 * folder, megabytes, number of warm-up rounds.
 */
public final class LuceneIndex {
    private static final int PARAGRAPHS_A_DOCUMENT = 8;

    private LuceneIndex() {}

    public static void main(String[] args) throws Exception {
        List<String> documents = documents(Path.of(args[0]), Long.parseLong(args[1]) << 20);
        Timed.rounds(Integer.parseInt(args[2]), () -> index(documents));
    }

    private static long index(List<String> documents) throws IOException {
        IndexWriterConfig config = new IndexWriterConfig(new StandardAnalyzer());
        config.setMergeScheduler(new SerialMergeScheduler()).setRAMBufferSizeMB(8);
        try (ByteBuffersDirectory directory = new ByteBuffersDirectory()) {
            try (IndexWriter writer = new IndexWriter(directory, config)) {
                int id = 0;
                for (String text : documents) {
                    Document document = new Document();
                    document.add(new StringField("id", Integer.toString(id++), Field.Store.YES));
                    document.add(new TextField("body", text, Field.Store.YES));
                    writer.addDocument(document);
                }
                writer.forceMerge(1);
            }
            long bytes = 0;
            for (String file : directory.listAll()) {
                bytes += directory.fileLength(file);
            }
            return bytes;
        }
    }

    private static List<String> documents(Path folder, long bytesMax) throws IOException {
        List<Path> files;
        try (Stream<Path> all = Files.walk(folder)) {
            files = all.filter(Files::isRegularFile).filter(LuceneIndex::isText).sorted().collect(Collectors.toList());
        }
        List<String> documents = new ArrayList<>();
        long bytes = 0;
        for (Path file : files) {
            if (bytes >= bytesMax) {
                break;
            }
            String text = read(file);
            bytes += text.length();
            split(text, documents);
        }
        return documents;
    }

    private static boolean isText(Path file) {
        String name = file.toString();
        return name.endsWith(".rst.gz") || name.endsWith(".txt.gz") || name.endsWith(".rst") || name.endsWith(".txt");
    }

    private static String read(Path file) {
        try (InputStream raw = Files.newInputStream(file);
                InputStream in = file.toString().endsWith(".gz") ? new GZIPInputStream(raw) : raw) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static void split(String text, List<String> documents) {
        String[] paragraphs = text.split("\n\n");
        for (int i = 0; i < paragraphs.length; i += PARAGRAPHS_A_DOCUMENT) {
            int end = Math.min(paragraphs.length, i + PARAGRAPHS_A_DOCUMENT);
            documents.add(String.join("\n\n", List.of(paragraphs).subList(i, end)));
        }
    }
}
